// The ops of all cases: which case uses which op in which state, and what that means per model.
"use strict";
report.openOps = async function (world) {
  if (report.opIndex) return report.opIndex;
  const data = await report.load("ops");
  const COUNT = data.states.length;
  const names = data.ops.map((name) => name.toLowerCase());
  const matching = new Map();

  // Sets that hold an op whose name contains the text, in the state if one is given.
  function sets(text, state) {
    const key = text + " " + state;
    if (!matching.has(key)) {
      const ops = names.map((name) => name.includes(text)), code = state === null ? -1 : data.states.indexOf(state);
      matching.set(key, data.sets.map((set) => set.some((one) => ops[Math.floor(one / COUNT)] && (state === null || one % COUNT === code))));
    }
    return matching.get(key);
  }
  // First match wins, after torch-spyre RFC 2834: a fallback names it; passes and fails; passes; fails.
  function combine(mask) {
    if (mask & 2) return 1;
    if (mask & 4 || (mask & 1 && mask & 8)) return 2;
    return mask & 1 ? 0 : 3;
  }
  // For each op a Map from model to its state.
  function states(cases) {
    const masks = data.ops.map(() => new Map());
    for (const one of cases) {
      const set = data.sets[data.case[one.index]];
      if (!set) continue;
      for (const code of set) {
        const of = masks[Math.floor(code / COUNT)];
        of.set(one.model.index, (of.get(one.model.index) || 0) | (1 << code % COUNT));
      }
    }
    return masks.map((of) => new Map([...of].map(([model, mask]) => [model, combine(mask)])));
  }
  report.opIndex = {
    data,
    uses(index, text, state) { const set = data.case[index]; return set >= 0 && sets(text, state)[set]; },
    states,
  };
  return report.opIndex;
};
