// The panel of a model that runs in the page: a sequence to type, edits of heads, and the outputs.
(() => {
  const { shown, count, element, button, select, clamp, ruleText } = anchorlab.parts;
  const [TOP, PAUSE] = [5, 200]; // number of outputs listed; milliseconds without a key press before a slow model runs
  let panels = 0;

  const described = (edit) => `layer ${edit.layer}, head ${edit.head}: ${ruleText(edit)}`;

  /** The outputs with the largest logits, as {id, logit, probability}. */
  function top(logits) {
    const order = Array.from(logits.keys()).sort((one, other) => logits[other] - logits[one]);
    const largest = logits[order[0]];
    const total = logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0);
    return order.slice(0, TOP).map((id) => ({ id, logit: logits[id], probability: Math.exp(logits[id] - largest) / total }));
  }

  /** `act` has the actions `type(sequence or null)`, `edit(edits)`, `look(position)`, and `record()`, which returns to the recorded examples. */
  globalThis.anchorlab.livePanel = (scene, state, act) => {
    const unique = `anchorlab-live-${++panels}`;
    let panes = [];
    let pause = null;

    // A sequence to type.
    const field = element("input", { type: "text", id: `${unique}-field`, spellcheck: "false", autocomplete: "off", "aria-describedby": `${unique}-said` });
    const said = element("p", { class: "said", id: `${unique}-said`, role: "status" });
    const back = button("Back to the recorded examples", "Back to the recorded examples: nothing typed, no edits", () => { act.record(); field.focus(); });
    const typed = element("div", { class: "typed" }, element("label", { for: field.id, class: "name" }, "Type a sequence"), field, back, said);
    function read() {
      const spelled = scene.spell(field.value);
      field.setAttribute("aria-invalid", String("problem" in spelled));
      if (spelled.problem) said.textContent = spelled.problem;
      else act.type(String(spelled.ids) === String(scene.recordedIds(state)) ? null : spelled);
    }
    field.addEventListener("input", () => {
      clearTimeout(pause);
      if (scene.slow()) pause = setTimeout(read, PAUSE);
      else read();
    });

    // Edits of the selected head, and all edits in force.
    const legend = element("legend");
    const by = element("input", { type: "number", min: 0, value: 1, "aria-label": "Positions to shift by" });
    const rules = { own: "its own pattern", off: "switched off", shift: "exact shift by", uniform: "uniform pattern" };
    const radios = Object.keys(rules).map((rule) => element("input", { type: "radio", name: `${unique}-rule`, value: rule }));
    const choices = radios.map((radio) => element("label", {}, radio, ` ${rules[radio.value]}`));
    const choice = element("fieldset", {}, legend, ...choices.flatMap((one, at) => (radios[at].value === "shift" ? [element("span", {}, one, " ", by)] : [one])));
    const edits = element("ul", { class: "edits", "aria-label": "Edits in force" });
    const undoAll = button("Undo all", "Undo all edits", () => { act.edit([]); focusRule(); });
    const here = (edit) => edit.layer === state.layer && edit.head === state.head;
    const focusRule = () => radios.find((radio) => radio.checked).focus();
    function edit(rule) {
      const others = state.edits.filter((one) => !here(one));
      const shift = clamp(Math.round(Number(by.value)) || 0, 0, scene.length - 1);
      const made = { layer: state.layer, head: state.head, rule, ...(rule === "shift" ? { shift } : {}) };
      act.edit(rule === "own" ? others : [...others, made]);
    }
    for (const radio of radios) radio.addEventListener("change", () => edit(radio.value));
    by.setAttribute("max", scene.length - 1);
    by.addEventListener("input", () => { if (by.value !== "") edit("shift"); });

    // The outputs at one position.
    const position = select("Position", Array.from({ length: scene.length }, (_, at) => at), (at) => act.look(at));
    const tables = element("div", { class: "tables" });
    const outputs = element("section", { class: "outputs", "aria-label": "Outputs" }, element("h4", {}, "Outputs at position ", position), tables);
    const side = element("div", { class: "live" }, choice, edits, outputs);

    function table(caption, logits, answer) {
      const rows = top(logits).map(({ id, logit, probability }) => {
        const bar = element("i", { "aria-hidden": "true" });
        bar.style.setProperty("--weight", probability.toFixed(4));
        const name = element("th", { scope: "row", class: id === answer ? "right" : "" }, shown(scene.outputText(id)));
        return element("tr", {}, name, element("td", { class: "bar-of" }, bar), element("td", {}, probability.toFixed(3)), element("td", {}, logit.toFixed(2)));
      });
      const head = element("tr", {}, ...["token", "", "probability", "logit"].map((name) => element("th", { scope: "col" }, name)));
      return element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...rows));
    }

    function drawOutputs() {
      position.value = state.looked();
      const answer = scene.sequence(state).asked?.answers?.find((one) => one.position === state.looked())?.token;
      const sets = state.edits.length ? [[state.edits, `with ${count(state.edits.length, "edit")}`], [[], "without edits"]] : [[[], "without edits"]];
      tables.replaceChildren(...panes.flatMap((pane) => sets.map(([inForce, called]) => {
        const logits = scene.logits(pane.which, state, state.looked(), inForce);
        const name = `${pane.heading.textContent}, ${called}`;
        return logits ? table(name, logits, answer) : element("p", { class: "notice" }, `${name}: the page does not include the weights.`);
      })));
    }
    function drawEdits() {
      legend.textContent = `Layer ${state.layer}, head ${state.head}`;
      const current = state.edits.find(here);
      for (const radio of radios) radio.checked = radio.value === (current?.rule ?? "own");
      if (current?.rule === "shift" && Number(by.value) !== current.shift) by.value = current.shift;
      const items = state.edits.map((one) => element("li", {}, described(one), " ", button("Undo", `Undo ${described(one)}`, () => {
        act.edit(state.edits.filter((other) => other !== one));
        (edits.querySelector("button") ?? radios.find((radio) => radio.checked)).focus();
      })));
      edits.replaceChildren(...items, ...(items.length > 1 ? [element("li", {}, undoAll)] : []));
      edits.hidden = items.length === 0;
    }
    function drawSaid() {
      const what = [...(state.typed ? ["typed sequence"] : []), ...(state.edits.length ? [count(state.edits.length, "edit")] : [])];
      const text = what.length ? `Live: ${what.join(", ")}. Maps and outputs come from the model; head names are those of the recorded examples.` : "Maps show the recorded example. Type another sequence, or edit a head, to run the model.";
      if (said.textContent !== text) said.textContent = text; // setting the same text would make screen readers repeat it
      said.classList.toggle("now", what.length > 0);
      back.hidden = what.length === 0;
    }

    return {
      typed, side,
      /** Writes a sequence into the field. */
      write(tokens) {
        clearTimeout(pause);
        field.value = tokens.map((token) => shown(token.text)).join(" ");
        field.setAttribute("aria-invalid", "false");
      },
      draw(shownPanes) {
        panes = shownPanes;
        drawOutputs();
        drawEdits();
        drawSaid();
      },
      drawEdits, drawOutputs,
    };
  };
})();
