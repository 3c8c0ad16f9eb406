/* Part of the search page: puts what was asked for by its number in the papers first.

   Sphinx inserts this into its language_data.js and calls `Scorer.score` for every result. The titles of places
   come from publish/search.py: "FAST’25, Figure 9: Hit ratio by capacity". */
;(() => { // what Sphinx puts before it ends without a semicolon
  "use strict";

  const KINDS = {
    figure: /^fig/, table: /^tab/, section: /^(sec|§)/, equation: /^eq/, algorithm: /^alg/,
  };
  const ASKED = /(?:^|[^\p{L}])(fig(?:ure|s)?|tab(?:le)?|sec(?:tion)?|§+|eq(?:n|uation)?|alg(?:orithm)?)\.?[\s\u00a0]*(a?\.?\d+(?:\.\d+)*)/iu;
  const PLACE = /^(FAST’25|arXiv), (\p{L}+) ([A-Z]?[\d.]*\d): /u;

  function asked() {
    const query = new URLSearchParams(location.search).get("q") || "";
    const [, word, number] = query.match(ASKED) || [];
    return {
      query,
      kind: word && Object.keys(KINDS).find(name => KINDS[name].test(word.toLowerCase())),
      number,
      arxiv: /arxiv|2407\.?00079/i.test(query),
      fast: /fast\W?(20)?25/i.test(query),
    };
  }

  Scorer.score = ([page, title, , description, score]) => {
    const [, paper, placeKind, placeNumber] = (description && title.match(PLACE)) || [];
    const { query, kind, number, arxiv, fast } = asked();
    if (title === query.trim()) return 200;
    if (!kind || !paper) return score;
    if (placeKind.toLowerCase() !== kind || placeNumber.toLowerCase() !== number.toLowerCase()) return 0;
    const other = paper === "arXiv" ? fast && !arxiv : arxiv && !fast;
    const first = paper === "arXiv" ? 0 : 2; // the later paper, where none is named
    const map = page.endsWith("paper-map") ? 10 : 0;
    return 100 + first - map - (other ? 50 : 0) + score / 100; // the first chart of several has the highest
  };

  // A page that was opened from disk may not read others, so their text cannot be shown below the results.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
})();
