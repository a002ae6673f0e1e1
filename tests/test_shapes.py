"""Public functions, and aliases of types, name the axes of their tensors."""

import ast
from pathlib import Path

import jaxtyping

import anchorlab


def bare(node):
    """Return whether an annotation, or one below the node, holds a tensor without axes."""
    match node:
        case ast.Constant(value=str(text)):
            return "Tensor" in text and bare(ast.parse(text, mode="eval"))
        case ast.Name(id="Tensor") | ast.Attribute(attr="Tensor"):
            return True
        case ast.Subscript(value=ast.Name(id=name)) if hasattr(jaxtyping, name):
            return False
    return any(map(bare, ast.iter_child_nodes(node)))


def without_axes(nodes):
    """Yield the names of public functions and aliases of types with a tensor that has no axes."""
    for node in nodes:
        name = getattr(node, "name", "")
        if name.startswith("_") and not name.endswith("__"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from without_axes(node.body)
        elif isinstance(node, ast.FunctionDef) and (bare(node.args) or (node.returns and bare(node.returns))):
            yield name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp) and bare(node.value):
            yield ast.unparse(node.targets[0])


def test_tensors_without_axes_are_found():
    code = "def norm(x: Tensor): 0\ndef parts() -> dict[str, 'torch.Tensor']: 0\nTap = Callable[[Tensor], None]"
    fine = "def norm(x: Float[Tensor, 'batch']) -> \"Float[torch.Tensor, '']\": 0\ndef _norm(x: Tensor): 0"
    assert [*without_axes(ast.parse(f"{code}\n{fine}").body)] == ["norm", "parts", "Tap"]


def test_public_functions_name_the_axes_of_their_tensors():
    source = Path(anchorlab.__file__).parent
    files = {path.relative_to(source): ast.parse(path.read_text("utf-8")) for path in source.rglob("*.py")}
    found = [f"{path.as_posix()}: {name}" for path, tree in files.items() for name in without_axes(tree.body)]
    assert found == []
