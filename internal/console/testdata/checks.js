// What tests ask of a page besides axe-core, which is there before.
window.checks = (function () {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const colour = ["color-contrast", "link-in-text-block"];
  const layout = ["target-size", "scrollable-region-focusable"];
  // What app.css and the browser take colours from, of an element or of what it is in.
  const looks = ["class", "type", "role", "style", "hidden", "open", "disabled", "dir", "aria-current", "aria-disabled", "aria-invalid", "aria-pressed"];
  const hasText = function (e) { return Array.from(e.childNodes).some(function (n) { return n.nodeType === 3 && n.nodeValue.trim() !== ""; }); };

  // byLook are the texts and fields that are seen, by how each comes by its colours: its own attributes and those around it.
  function byLook() {
    const names = new Map(), found = new Map();
    const name = function (e) {
      if (!names.has(e)) {
        names.set(e, (e === document.body ? "" : name(e.parentElement)) + ">" + e.localName + (hasText(e) ? "." : "") + looks.filter(function (a) { return e.hasAttribute(a); }).map(function (a) { return "[" + a + "=" + e.getAttribute(a) + "]"; }).join(""));
      }
      return names.get(e);
    };
    for (const e of document.body.querySelectorAll("*")) {
      if (!(hasText(e) || e.matches("input, select, textarea")) || !e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
      const n = name(e);
      if (!found.has(n)) found.set(n, []);
      found.get(n).push(e);
    }
    return found;
  }

  // run answers a line for each violation of rules.
  function run(context, options) {
    options.resultTypes = ["violations"];
    return axe.run(context, options).then(function (r) {
      return r.violations.map(function (v) { return v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(function (n) { return n.html.slice(0, 160) + " " + (n.failureSummary || "").replace(/\s+/g, " ").slice(0, 260); }).join(" | "); });
    });
  }
  const only = function (rules) { return { runOnly: { type: "rule", values: rules } }; };

  return {
    all: function () { return run(document, { runOnly: tags }); },
    structure: function () { return run(document, { runOnly: tags, rules: Object.fromEntries(colour.map(function (id) { return [id, { enabled: false }]; })) }); },
    layout: function () { return run(document, only(layout)); },
    // colours checks what has the looks named.
    colours: function (names) {
      const all = byLook(), include = names.flatMap(function (n) { return all.get(n) || []; });
      return include.length ? run({ include: include }, only(colour)) : [];
    },
    looks: function () { return Array.from(byLook().keys()); },

    // thin takes rows, options and parts of pictures away that two before them, of the same parent, have the shape of: the
    // same elements with the same attributes, with text where those have text.
    thin: function () {
      const shape = function (e) {
        const attributes = Array.from(e.attributes).map(function (a) { return a.name + (looks.includes(a.name) || a.name === "scope" ? "=" + a.value : a.value === "" ? "" : "="); }).sort().join(" ");
        const seen = new Map();
        let inner = "";
        for (const child of Array.from(e.children)) {
          const s = shape(child), n = (seen.get(s) || 0) + 1;
          seen.set(s, n);
          if (n > 2 && child.matches("tr, li, option, svg *")) child.remove();
          else inner += s;
        }
        return "<" + e.localName + " " + attributes + ">" + (hasText(e) ? "." : "") + inner + "</>";
      };
      shape(document.body);
    },
  };
})();
