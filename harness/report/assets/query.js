// The query language: words, field:value, field>number, seq:, since:, count:, joined by "and"; "-" negates.
"use strict";
report.query = (function () {
  const FIELDS = {
    model: (c) => c.model.name, task: (c) => c.model.task, family: (c) => c.model.family, arch: (c) => c.model.architecture, adapter: (c) => c.model.adapter,
    target: (c) => c.config[0], mode: (c) => c.config[1], dtype: (c) => c.config[2], shape: (c) => c.config[3],
    check: (c) => c.config[4] || "outputs",
    status: (c) => c.status, outcome: (c) => c.outcome, flag: (c) => c.flags, id: (c) => c.id,
  };
  const EXACT = new Set(["status", "target", "mode", "task", "shape", "check"]);
  const NUMBERS = { ratio: (c) => c.ratio, share: (c) => (c.share === null ? null : report.number(c.share) * 100), seconds: (c) => c.seconds };
  const LETTER = Object.fromEntries(Object.entries(report.STATUS).map(([letter, word]) => [word.toLowerCase(), letter]));
  const COMPARE = { ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, "=": (a, b) => a === b };

  // Words of the text; double quotes keep blanks together.
  function words(text) {
    return (text.match(/(?:[^\s"]+|"[^"]*"?)+/g) || []).map((word) => word.replace(/"/g, ""));
  }

  function atom(word) {
    const negated = word.length > 1 && word[0] === "-";
    if (negated) word = word.slice(1);
    const compared = /^(ratio|share|seconds)(>=|<=|>|<|=)(-?[\d.]+(?:e-?\d+)?)$/i.exec(word);
    let test;
    if (compared) test = numeric(compared[1].toLowerCase(), compared[2], Number(compared[3]));
    else {
      const colon = word.indexOf(":");
      const field = colon > 0 ? word.slice(0, colon).toLowerCase() : "";
      const value = word.slice(colon + 1).toLowerCase();
      if (field in FIELDS) test = textual(field, value);
      else if (field in SPECIAL) test = SPECIAL[field](value);
      else { const wanted = word.toLowerCase(); test = (c) => c.mentions(wanted); }
    }
    return negated ? (c) => !test(c) : test;
  }

  function numeric(field, operator, limit) {
    const read = NUMBERS[field], holds = COMPARE[operator];
    return (c) => {
      const value = report.number(read(c));
      if (value === null) return false;
      // NaN is worse than any number: it is above every limit.
      return Number.isNaN(value) ? operator[0] === ">" : holds(value, limit);
    };
  }

  function textual(field, value) {
    const read = FIELDS[field], wanted = value.split(",").filter(Boolean);
    if (EXACT.has(field)) return (c) => { const has = read(c).toLowerCase(); return wanted.some((one) => has === one); };
    return (c) => { const has = read(c).toLowerCase(); return wanted.some((one) => has.includes(one)); };
  }

  const SPECIAL = {
    // seq:pass>fail  the statuses occur next to each other in this order, absent runs left out
    seq(value) {
      const wanted = value.split(/[>,]/).map((word) => LETTER[word] || "?").join("");
      return (c) => c.moves().includes(wanted);
    },
    // since:7d  the status is not older than this
    since(value) {
      const found = /^(\d+(?:\.\d+)?)([hdw])$/.exec(value);
      if (!found) return () => false;
      const span = Number(found[1]) * { h: 36e5, d: 864e5, w: 6048e5 }[found[2]];
      return (c) => { const at = c.changed(); return at !== null && report.newest() - at <= span; };
    },
    // count:fail>=3  how many runs had the status
    count(value) {
      const found = /^([a-z]+)(>=|<=|>|<|=)(\d+)$/.exec(value);
      if (!found || !LETTER[found[1]]) return () => false;
      const letter = LETTER[found[1]], holds = COMPARE[found[2]], limit = Number(found[3]);
      return (c) => holds(c.tally(letter), limit);
    },
    is(value) {
      if (value === "different") return (c) => c.moves().length > 1;
      if (value === "unexpected") return (c) => ["FAIL", "ERROR", "XPASS", "NOTRUN"].includes(c.status);
      return (c) => c.labels.includes(value);
    },
    change(value) {
      const wanted = value.split(",").filter(Boolean);
      return (c) => wanted.some((word) => c.labels.includes(word));
    },
    // op:aten.sin and state:cpu_fallback need the op index, which the page loads when it sees the word.
    op: (value) => (c) => report.opIndex !== undefined && report.opIndex.uses(c.index, value, null),
    state: (value) => (c) => report.opIndex !== undefined && report.opIndex.uses(c.index, "", value),
  };

  // A predicate over cases; an empty text matches all.
  function compile(text) {
    const tests = words(text).map(atom);
    return (c) => tests.every((test) => test(c));
  }
  const needsOps = (text) => words(text).some((word) => /^-?(op|state):/i.test(word));
  return { compile, words, needsOps };
})();
