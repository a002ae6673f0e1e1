"""Write the repository's address into pyproject.toml and README.md: `[project.urls]`, badges and full links.

ANCHORLAB_REPOSITORY names it as owner/name on GitHub, ANCHORLAB_DOCS gives the address of the published pages. Without
the first nothing changes, nor does a second run change more. The release workflow runs this before it builds.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def with_urls(project: str, address: str, docs: str) -> str:
    """Add `[project.urls]` to the text of pyproject.toml."""
    if "[project.urls]" in project:
        return project
    urls = {
        "Repository": address,
        "Documentation": docs,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }
    lines = [f'{name} = "{url}"\n' for name, url in urls.items() if url]
    return project.replace("[project.scripts]\n", f"[project.urls]\n{''.join(lines)}\n[project.scripts]\n")


def with_badges(readme: str, address: str) -> str:
    """Put badges below the title of the README, and complete its links, which the page on PyPI cannot follow."""
    readme = re.sub(r"(!\[[^]]*\])\((?!https?:)", rf"\1({address}/raw/main/", readme)
    readme = re.sub(r"(?<=\]\()(?!https?:|#)", f"{address}/blob/main/", readme)
    workflow = f"{address}/actions/workflows/ci.yml"
    badges = [
        f"[![CI]({workflow}/badge.svg?branch=main)]({workflow})",
        "[![PyPI](https://img.shields.io/pypi/v/anchorlab)](https://pypi.org/project/anchorlab/)",
    ]
    return readme if badges[0] in readme else readme.replace("\n", "\n\n" + "\n".join(badges) + "\n", 1)


def main() -> None:
    """Change both files in place."""
    repository, docs = os.environ.get("ANCHORLAB_REPOSITORY"), os.environ.get("ANCHORLAB_DOCS", "")
    if repository:
        address = f"https://github.com/{repository}"
        project, readme = ROOT / "pyproject.toml", ROOT / "README.md"
        project.write_text(with_urls(project.read_text("utf-8"), address, docs), "utf-8")
        readme.write_text(with_badges(readme.read_text("utf-8"), address), "utf-8")


if __name__ == "__main__":
    main()
