// Filters the table of claims by paper, verdict, scope and words. The choices are kept in the address after `?`, so that
// a filtered table can be linked to: claims.html?paper=truncated+weights&verdict=contradicted
document.addEventListener("DOMContentLoaded", () => {
  const table = document.getElementById("claims");
  if (!table) return;
  const rows = [...table.tBodies[0].rows], form = document.getElementById("claims-filter");
  const asked = new URLSearchParams(location.search);

  const field = (name, made) => {
    const label = form.appendChild(document.createElement("label"));
    label.append(`${name} `, made);
    made.name = name;
    made.addEventListener("input", show);
  };

  const show = () => {
    const chosen = [...new FormData(form)].filter(([, value]) => value);
    const words = chosen.filter(([name]) => name === "words").flatMap(([, value]) => value.toLowerCase().split(/\s+/));
    const exact = chosen.filter(([name]) => name !== "words");
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(exact.every(([name, value]) => row.dataset[name] === value) && words.every((word) => text.includes(word)));
      count += !row.hidden;
    }
    document.getElementById("claims-count").textContent = `${count} of ${rows.length} claims`;
    const query = new URLSearchParams(chosen).toString();
    try {
      history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash);
    } catch {
      // a page opened from a file keeps its address in some browsers
    }
  };

  for (const name of ["paper", "verdict", "scope"]) {
    const select = document.createElement("select");
    const values = [...new Set(rows.map((row) => row.dataset[name]))];
    select.replaceChildren(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    if (values.includes(asked.get(name))) select.value = asked.get(name);
    field(name, select);
  }
  const input = document.createElement("input");
  input.type = "search";
  input.value = asked.get("words") ?? "";
  field("words", input);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
});
