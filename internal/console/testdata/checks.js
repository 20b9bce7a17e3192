// What tests ask of a page besides axe-core, which is there before.
window.checks = (function () {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const colour = ["color-contrast", "link-in-text-block"];
  const layout = ["target-size", "scrollable-region-focusable"];
  // What app.css and the browser take colours from, of an element or of what it is in.
  const looks = ["class", "type", "role", "style", "hidden", "open", "disabled", "dir", "aria-current", "aria-disabled", "aria-invalid", "aria-pressed"];
  const hasText = function (e) { return Array.from(e.childNodes).some(function (n) { return n.nodeType === 3 && n.nodeValue.trim() !== ""; }); };

  // texts are the nodes of text of the page that are seen.
  function texts() {
    const all = [], walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const e = walk.currentNode.parentElement;
      if (walk.currentNode.nodeValue.trim() && !e.closest("textarea, option, svg, .sr, .why") && e.checkVisibility({ visibilityProperty: true })) all.push(walk.currentNode);
    }
    return all;
  }

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

    // words are those of usual length that go on in another line.
    words: function () {
      const all = texts(), found = [];
      for (const node of all) {
        for (const m of node.nodeValue.matchAll(/[\p{L}\p{N}_]+/gu)) {
          if (m[0].length > 24) continue;
          const range = document.createRange();
          range.setStart(node, m.index);
          range.setEnd(node, m.index + m[0].length);
          const lines = new Set(Array.from(range.getClientRects()).filter(function (r) { return r.width > 0; }).map(function (r) { return Math.round(r.top); }));
          if (lines.size > 1) found.push("split: " + m[0] + " in " + node.parentElement.closest("tr, li, p, h1, dd, div").textContent.slice(0, 60));
        }
      }
      return found.slice(0, 5);
    },
    // columns are those of a table that one has to scroll for.
    columns: function () {
      return Array.from(document.querySelectorAll("main .scroll")).filter(function (e) { return e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1; }).map(function (e) {
        return e.getAttribute("aria-label") + ": " + e.scrollWidth + " > " + e.clientWidth + ": " + Array.from(e.querySelectorAll("thead th")).map(function (h) { return h.textContent + " " + Math.round(h.getBoundingClientRect().width); }).join(", ");
      });
    },
    // directions are texts that turn the direction of what is beside them, or are turned by it.
    directions: function () {
      const found = [];
      for (const node of texts()) {
        const e = node.parentElement;
        if (/[\u202a-\u202e\u2066-\u2069]/.test(node.nodeValue)) found.push("turns: " + node.nodeValue.slice(0, 60));
        if (/[\u0590-\u08ff]/.test(node.nodeValue) && !(e.closest("bdi") && getComputedStyle(e.closest("bdi")).unicodeBidi === "isolate")) found.push("not isolated: " + e.outerHTML.slice(0, 120));
        if (e.matches("a, span, strong, em, code, time") && getComputedStyle(e).unicodeBidi === "normal") found.push("no isolation: " + e.outerHTML.slice(0, 120));
      }
      return found.slice(0, 5);
    },

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
