// How search ranks what it finds: pages that tell what to do first, experiments and cards last.
var Scorer = {
  score: ([docname, , , , score]) =>
    score + (/^(tutorial|how-to|explanation)/.test(docname) ? 4 : 0)
    - (/^(experiments|models)/.test(docname) ? 12 : 0) - (docname === "reference/cli" ? 4 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
