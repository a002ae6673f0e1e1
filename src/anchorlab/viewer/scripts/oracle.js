// The oracle of an anchor function: which rule a sequence follows, and its answer.
//
// `anchorlab.oracle(given)` reads the JSON of viewer/oracle.py, whose terms are those of tasks/anchor: a pattern has slots
// (anchors before keys), written at `places` with `gaps` of noise between them; the answer is a tree of nodes. Values are
// BigInt, and the task refuses answers beyond 64 bits, so that both oracles agree; null means no answer.
(() => {
  const magnitude = (value) => (value < 0n ? -value : value);
  const modulo = (one, other) => ((one % other) + other) % other;
  const ARITHMETIC = {
    "+": (one, other) => one + other,
    "-": (one, other) => one - other,
    "*": (one, other) => one * other,
    "//": (one, other) => (other === 0n ? null : (one - modulo(one, other)) / other),
    "%": (one, other) => (other === 0n ? null : modulo(one, other)),
  };

  /** Applies an operation to a token; null outside its domain. Every step must stay within the vocabulary. */
  const applied = ({ steps, table }, value, size) => {
    const inside = (token) => token >= 0n && token < size;
    if (!inside(value)) return null;
    if (table.length) {
      const entry = table.find(([token]) => BigInt(token) === value);
      return entry && inside(BigInt(entry[1])) ? BigInt(entry[1]) : null;
    }
    for (const [sign, amount] of steps) {
      value = ARITHMETIC[sign](value, BigInt(amount));
      if (!inside(value)) return null;
    }
    return value;
  };

  /** Every layout of a rule's written tokens whose anchors are exactly at the anchors of the sequence. */
  const layouts = (rule, isAnchor) => {
    const found = [], length = isAnchor.length;
    const noise = (from, to) => !isAnchor.slice(from, to).includes(true);
    const lay = (positions) => {
      const place = positions.length, from = place ? positions[place - 1] + 1 : 0, { least, open } = rule.gaps[place];
      if (place === rule.places.length) {
        const rest = length - from;
        if ((open ? rest >= least : rest === least) && noise(from, length)) found.push(positions);
        return;
      }
      const last = open ? length - 1 : Math.min(from + least, length - 1);
      for (let at = from + least; at <= last && noise(from, at); at++) {
        if (isAnchor[at] === rule.places[place] < rule.anchors.length) lay([...positions, at]);
      }
    };
    lay([]);
    return found;
  };

  /** The contents of a rule's slots under a layout, as a map to `{token, position}`; null if the rule forbids them. */
  const heldBy = (given, rule, positions, tokens) => {
    const names = [...rule.anchors.map(({ name }) => name), ...rule.keys];
    const first = names.map((_, slot) => positions[rule.places.indexOf(slot)]), held = first.map((at) => tokens[at]);
    const anchors = held.slice(0, rule.anchors.length), keys = held.slice(rule.anchors.length);
    if (positions.some((at, place) => tokens[at] !== held[rule.places[place]])) return null;
    if (rule.anchors.some(({ choices }, slot) => !choices.includes(anchors[slot]))) return null;
    if (keys.some((key) => !isItem(given, key))) return null;
    if (given.distinct && new Set(anchors).size < anchors.length) return null;
    return new Map(names.map((name, slot) => [name, { token: held[slot], position: first[slot] }]));
  };

  const isItem = ({ items }, token) => token >= items[0] && token <= items[1];

  /** The one rule that a sequence fits; null if no rule or several rules fit. */
  const read = (given, tokens) => {
    const isAnchor = tokens.map((token) => given.anchors.includes(token)), found = [];
    for (const rule of given.rules) {
      for (const positions of layouts(rule, isAnchor)) {
        const held = heldBy(given, rule, positions, tokens);
        if (held) found.push({ rule, positions, held });
      }
    }
    return found.length === 1 ? found[0] : null;
  };

  /** Returns a function that evaluates the nodes of an answer; `steps` collects the operations that were applied. */
  const evaluator = (given, { held }, tokens, steps) => {
    const size = BigInt(given.size), tokenOf = (slot) => held.get(slot).token;
    const pairOf = (first, second) => (pair) => pair[0] === tokenOf(first) && pair[1] === tokenOf(second);
    const operationOf = (slot) => given.operations[tokenOf(slot)];
    const exceptionOf = (first, second) => given.exceptions.find(({ pair }) => pairOf(first, second)(pair))?.operation;
    const step = ({ text, before }, slot, value) => {
      const operation = (before && exceptionOf(before, slot)) || operationOf(slot);
      steps.push(`${text} = ${value ?? -1} (${operation.text})`);
      return value;
    };
    const apply = (slot, value) => (value === null ? null : applied(operationOf(slot), value, size));
    const all = (nodes, combine) => {
      const values = nodes.map(evaluate);
      return values.includes(null) ? null : combine(values);
    };
    const KINDS = {
      number: ({ value }) => BigInt(value),
      slot: ({ slot }) => BigInt(tokenOf(slot)),
      negate: ({ of }) => all([of], ([value]) => -value),
      arithmetic: ({ sign, left, right }) => all([left, right], ([one, other]) => ARITHMETIC[sign](one, other)),
      least: ({ of }) => all(of, (values) => values.reduce((one, other) => (other < one ? other : one))),
      most: ({ of }) => all(of, (values) => values.reduce((one, other) => (other > one ? other : one))),
      apply: ({ slot, of, shown }) => step(shown, slot, apply(slot, evaluate(of))),
      pair: ({ first, second, of, shown, trained }) => {
        const value = evaluate(of), exception = exceptionOf(first, second);
        const between = step(shown[0], first, apply(first, value));
        const result = exception ? (value === null ? null : applied(exception, value, size)) : apply(second, between);
        step(shown[1], second, result);
        return trained && !given.trained.some(pairOf(first, second)) ? null : result;
      },
      nearest: ({ to, among, give }) => all([to, ...among, ...give], ([goal, ...values]) => {
        const distances = values.slice(0, among.length).map((value) => magnitude(value - goal));
        const best = distances.reduce((one, other) => (other < one ? other : one));
        const at = distances.indexOf(best);
        return distances.lastIndexOf(best) === at ? values[among.length + at] : null;
      }),
      first_after: ({ slot }) => {
        const found = tokens.find((token, at) => at > held.get(slot).position && isItem(given, token));
        return found === undefined ? null : BigInt(found);
      },
    };
    const evaluate = (node) => KINDS[node.kind](node);
    return evaluate;
  };

  /** The tokens that statistical labels give for an answer, each with its probability. */
  const distribution = ({ label, size }, token) => {
    const changed = applied(label.operation, BigInt(token), BigInt(size));
    if (changed === null || Number(changed) === token) return [[token, 1]];
    return [[token, 1 - label.share], [Number(changed), label.share]];
  };

  /** The answers to a sequence of token ids, the role of each token and the trace in words; or the problem. */
  const ask = (given, tokens) => {
    if (tokens.length !== given.length) return { problem: `the task reads ${given.length} tokens, not ${tokens.length}` };
    const unknown = tokens.find((token) => !(Number.isInteger(token) && token >= 0 && token < given.size));
    if (unknown !== undefined) return { problem: `${unknown} is not a token of the task, 0 to ${given.size - 1}` };
    const found = read(given, tokens);
    if (!found) return { problem: "no single arrangement of anchors and keys" };
    const { rule, positions, held } = found, steps = [];
    const answer = evaluator(given, found, tokens, steps)(rule.answer);
    if (answer === null || answer < 0n || answer >= BigInt(given.size)) return { problem: `${rule.answer_text} has no answer` };
    const roles = tokens.map(() => "noise");
    positions.forEach((at, place) => (roles[at] = rule.places[place] < rule.anchors.length ? "anchor" : "key"));
    const trace = given.rules.length > 1 ? [`rule ${rule.name}: ${rule.text}`] : [];
    for (const { token, position } of held.values()) trace.push(`${roles[position]} ${token} at position ${position}`);
    trace.push(...steps);
    const token = Number(answer), soft = given.label && { distribution: distribution(given, token) };
    return { answers: given.positions.map((position) => ({ position, token, ...soft })), roles, trace };
  };

  const oracle = (given) => ({ ask: (tokens) => ask(given, Array.from(tokens)) });

  globalThis.anchorlab ??= {};
  globalThis.anchorlab.oracle = oracle;
})();
