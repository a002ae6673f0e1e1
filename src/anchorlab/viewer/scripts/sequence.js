// The sequence: tokens in the colours of their roles, the predictions, and the derivation of the correct answer.
(() => {
  const { shown, element, count } = anchorlab.parts;
  const ROLE_COLOURS = 6;
  const FEW = 3; // more answers than this are counted instead of listed
  const PLAIN = ["noise", "plain", "token"]; // roles without a colour
  // These roles have the same colour on every page; other roles take unused colours, in the order of their names.
  const COLOUR_OF = { anchor: 0, trigger: 0, parent: 0, key: 3, output: 3, value: 3, query: 2, question: 2 };

  /** `act` has the actions `point(query, key, pinned)` and `unpoint()`. Predictions are shown under the tokens of a live model only. */
  globalThis.anchorlab.sequence = (scene, state, act) => {
    const roles = [];
    const chips = element("ol", { class: "sequence", "aria-label": "Sequence" });
    const legend = element("ul", { class: "roles", "aria-label": "Roles of tokens" });
    const verdict = element("p", { class: "prediction", role: "status" });
    const trace = element("p", { class: "trace" });
    const root = element("div", {}, chips, element("div", { class: "under" }, legend, verdict), trace);
    const others = [...new Set(scene.roles.map(({ role }) => role))].filter((role) => !PLAIN.includes(role) && !Object.hasOwn(COLOUR_OF, role)).sort();
    const left = Array.from({ length: ROLE_COLOURS }, (_, colour) => colour).filter((colour) => !scene.roles.some(({ role }) => COLOUR_OF[role] === colour));
    const roleClass = (role) => (PLAIN.includes(role) ? "role-noise" : `role-${COLOUR_OF[role] ?? left[Math.max(others.indexOf(role), 0) % left.length]}`);
    chips.addEventListener("mouseleave", () => act.unpoint());

    function draw() {
      const { tokens, trace: steps } = scene.sequence(state);
      for (const { role } of [...(roles.length ? [] : scene.roles), ...tokens]) if (!roles.includes(role)) roles.push(role);
      legend.replaceChildren(...roles.map((role) => element("li", { class: roleClass(role) }, role)));
      legend.hidden = roles.every((role) => PLAIN.includes(role));
      chips.replaceChildren(...tokens.map((token, position) => {
        const chip = element("li", { class: roleClass(token.role), title: `position ${position}: ${token.role}` }, element("span", {}, shown(token.text)), element("i", { "aria-hidden": "true" }));
        if (scene.live) chip.append(element("b", { class: "says" }));
        chip.addEventListener("mouseenter", () => act.point(position, null));
        chip.addEventListener("click", () => act.point(position, null, true));
        return chip;
      }));
      trace.textContent = steps.length ? `How the answer follows: ${steps.join(" → ")}` : "";
    }

    const judged = (text, right) => element("b", { class: right ? "right" : "wrong" }, `${shown(text)} ${right ? "✓" : "✗"}`);
    const recorded = (which) => {
      const { answer } = scene.sequence(state);
      const predicted = scene.predicted(which, state);
      const parts = answer ? ["answer ", element("b", {}, shown(answer))] : [];
      if (predicted === undefined) return parts;
      return [...parts, `${parts.length ? " · " : ""}predicted `, answer ? judged(predicted, predicted === answer) : element("b", {}, shown(predicted))];
    };

    /** Compares the model's outputs with the oracle's answers, one by one if there are few. */
    function running(said) {
      const { asked, answer } = scene.sequence(state);
      if (!said) return ["the page does not include these weights"];
      const final = said.length - 1;
      const text = scene.outputText;
      if (!asked && answer) return ["answer ", element("b", {}, shown(answer)), " · predicted ", judged(text(said[final]), text(said[final]) === answer)];
      if (!asked || asked.problem) return ["predicted ", element("b", {}, shown(text(said[final]))), ` at position ${final} · ${asked ? `no right answer: ${asked.problem}` : "the page has no oracle of this task"}`];
      const right = asked.answers.filter(({ position, token }) => said[position] === token).length;
      if (asked.answers.length > FEW) return [element("b", { class: right === asked.answers.length ? "right" : "wrong" }, `${right} of ${count(asked.answers.length, "answer")} right`)];
      return asked.answers.flatMap(({ position, token }, at) => [
        at ? " · " : "", asked.answers.length > 1 || position !== final ? `position ${position}: ` : "", "answer ", element("b", {}, shown(text(token))), " · predicted ", judged(text(said[position]), said[position] === token),
      ]);
    }

    /** Writes the predictions under the tokens and as text, which begins with `whose`, the name of the model. */
    function drawWords(which, whose) {
      const said = scene.live ? scene.outputs(which, state) : null;
      const { split, asked } = scene.sequence(state);
      const answers = new Map((asked?.answers ?? []).map(({ position, token }) => [position, token]));
      if (scene.live) [...chips.children].forEach((chip, position) => {
        const says = chip.lastChild;
        says.textContent = said ? shown(scene.outputText(said[position])) : "";
        says.classList.toggle("right", said !== null && said[position] === answers.get(position));
        says.classList.toggle("wrong", said !== null && answers.has(position) && said[position] !== answers.get(position));
        says.title = `output at position ${position}`;
      });
      const parts = scene.inForce(state) ? running(said) : recorded(which);
      verdict.replaceChildren(parts.length ? whose : "", ...parts, split ? `${parts.length ? " · " : ""}${split} example` : "");
    }

    /** Draws bars under the tokens: the query's attention to each. */
    function drawPoint(weight) {
      [...chips.children].forEach((chip, position) => {
        chip.style.setProperty("--weight", weight(state.query, position));
        chip.classList.toggle("query", position === state.query);
        chip.classList.toggle("key", position === state.key);
      });
    }

    /** The colour of each token. */
    function inks() {
      const known = new Map(roles.map((role, at) => [role, getComputedStyle(legend.children[at]).color]));
      return scene.sequence(state).tokens.map((token) => known.get(token.role));
    }
    return { root, draw, drawWords, drawPoint, inks };
  };
})();
