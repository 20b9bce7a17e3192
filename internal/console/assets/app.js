// The console's one script: times, theme, dialogs, live numbers, plots, copying. Pages work without it.
(function () {
  "use strict";
  var $ = function (s, in_) { return (in_ || document).querySelector(s); };
  var $$ = function (s, in_) { return Array.prototype.slice.call((in_ || document).querySelectorAll(s)); };
  var keep = {
    get: function (k) { try { return localStorage.getItem("duly-" + k); } catch (e) { return null; } },
    set: function (k, v) { try { localStorage.setItem("duly-" + k, v); } catch (e) { /* it holds for this page */ } }
  };
  function say(text) { $("#say").textContent = text; }

  // A form that already is a page stays one: its answer replaces the page.
  $$("main #dialog-content form").forEach(function (f) {
    ["hx-post", "hx-target", "hx-select", "hx-swap"].forEach(function (a) { f.removeAttribute(a); });
  });

  // --- Times: relative, and exact in the zone that was chosen.
  var local = keep.get("zone") === "local";
  function two(n) { return (n < 10 ? "0" : "") + n; }
  function absolute(d, ms) {
    var u = local ? "" : "UTC";
    var t = d["get" + u + "FullYear"]() + "-" + two(d["get" + u + "Month"]() + 1) + "-" + two(d["get" + u + "Date"]()) + " " +
      two(d["get" + u + "Hours"]()) + ":" + two(d["get" + u + "Minutes"]()) + ":" + two(d["get" + u + "Seconds"]());
    if (ms) t += "." + ("00" + d["get" + u + "Milliseconds"]()).slice(-3);
    return t + (local ? "" : "Z");
  }
  // By the clock of the node that made the page: this machine's may be wrong.
  var apart = Date.now() - readAt();
  function now() { return Date.now() - apart; }
  function relative(d) {
    var s = (now() - d.getTime()) / 1000, ahead = s < 0, text;
    s = Math.abs(s);
    if (s < 1) return "now";
    if (s < 120) text = Math.floor(s) + " s";
    else if (s < 7200) text = Math.floor(s / 60) + " min";
    else if (s < 172800) text = Math.floor(s / 3600) + " h";
    else text = Math.floor(s / 86400) + " d";
    return ahead ? "in " + text : text + " ago";
  }
  function put(node, text) { if (node && node.textContent !== text) node.textContent = text; }
  function times(root) {
    $$("time.t", root).forEach(function (t) {
      var d = new Date(t.dateTime);
      put($(".rel", t), relative(d));
      put($(".abs", t), absolute(d));
    });
    $$("time.x", root).forEach(function (t) { put(t, absolute(new Date(t.dateTime), true)); });
  }
  function zone() {
    var name = "local";
    try { name = Intl.DateTimeFormat().resolvedOptions().timeZone || name; } catch (e) { /* as it is */ }
    put($("#zone-word"), local ? name : "UTC");
    times();
  }
  $("#zone").addEventListener("click", function () {
    local = !local;
    keep.set("zone", local ? "local" : "utc");
    zone();
    say("Times are " + $("#zone-word").textContent);
  });
  setInterval(function () { if (!document.hidden) times(); }, 1000);

  // --- Theme: the system's, light, dark.
  function theme() { put($("#theme-word"), document.documentElement.dataset.theme || "system"); }
  $("#theme").addEventListener("click", function () {
    var order = ["system", "light", "dark"], now = document.documentElement.dataset.theme || "system";
    var next = order[(order.indexOf(now) + 1) % 3];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    keep.set("theme", next);
    theme();
    plots();
  });

  // --- Dialogs: a form's page, taken into this one.
  var dialog = $("#dialog"), opener = null;
  document.addEventListener("htmx:after:swap", function () {
    var body = $("#dialog-body");
    if (body.firstElementChild && !dialog.open) {
      opener = document.activeElement;
      dialog.showModal();
    }
    if (dialog.open) {
      var to = $("[aria-invalid=true]", body) || $("[autofocus]", body) || $("textarea:not([readonly]), input:not([type=hidden]):not([type=radio]), select", body) || $("button, a.button", body);
      if (to) to.focus();
    }
    times(); picked(); graphs(); played();
  });
  dialog.addEventListener("close", function () {
    $("#dialog-body").textContent = "";
    if (opener && opener.isConnected) opener.focus();
  });
  document.addEventListener("click", function (e) {
    var close = e.target.closest("[data-close]");
    if (close && dialog.open && dialog.contains(close)) {
      e.preventDefault();
      dialog.close();
    }
    if (e.target.closest("[aria-disabled=true]")) e.preventDefault();
  });
  // A form is sent once, however often its button is pressed: one of a dialog until an answer leaves it where it is, one that
  // the browser sends until its page should be there.
  document.addEventListener("submit", function (e) {
    var form = e.target;
    if (form.method !== "post" || form.hasAttribute("hx-post")) return;
    if (Date.now() - Number(form.dataset.sent || 0) < 10000) e.preventDefault();
    else form.dataset.sent = Date.now();
  });
  function answered(ctx) { if (ctx && ctx.sourceElement) delete ctx.sourceElement.dataset.sent; }
  document.addEventListener("htmx:config:request", function (e) {
    var ctx = e.detail.ctx, body = ctx && ctx.request && ctx.request.body;
    if (ctx && ctx.request.method === "POST") {
      if (ctx.sourceElement.dataset.sent) e.preventDefault();
      ctx.sourceElement.dataset.sent = "1";
      return;
    }
    if (!ctx || ctx.request.method !== "GET" || !body || !body.entries) return;
    // An empty field is no part of an address.
    Array.from(body.entries()).forEach(function (p) { if (p[1] === "") body.delete(p[0]); });
  });
  // When the content of this page was read: live numbers change but a part of most pages.
  function readAt() { return new Date($("#fresh time").dateTime); }
  function read(at) { $("#fresh time").dateTime = at; }

  // What a page says that is shown in the place of another: of an error, or for signing in.
  function said(page) {
    var note = page.querySelector("main .note"), title = page.querySelector("h1");
    return note ? note.textContent.trim() : title ? title.textContent.trim() + "." : "The answer cannot be shown.";
  }
  // A page of an error comes in the place of a part that it does not have: what is there stays, grey, and the banner says it
  // until that part comes.
  var held = "", heldPart = "";
  document.addEventListener("htmx:before:swap", function (e) {
    var ctx = e.detail.ctx, page = ctx && ctx.select && new DOMParser().parseFromString(ctx.text, "text/html");
    answered(ctx);
    if (!page || page.querySelector(ctx.select)) {
      if (held && ctx.select === heldPart) banner(held = "");
      if (page && ctx.select !== "#dialog-content") read(new Date(now()).toISOString());
      return;
    }
    e.preventDefault();
    heldPart = ctx.select;
    held = said(page) + " What you see was read at " + absolute(readAt()) + ".";
    banner(held);
    if (player) { player.value = $("#frame").dataset.at; played(); }
  });
  document.addEventListener("htmx:error", function (e) {
    var ctx = e.detail.ctx, changes = ctx && ctx.request && ctx.request.method === "POST";
    answered(ctx);
    banner("No answer came from Duly. " + (changes ? "What you asked for may be done: look before you ask again." : "Try again."));
  });

  // --- A cell that is cut shows all of its text to the pointer.
  document.addEventListener("pointerover", function (e) {
    var cell = e.target.closest && e.target.closest(".list td, .list tbody th, .label");
    if (cell && cell.scrollWidth > cell.clientWidth && !cell.title) cell.title = cell.textContent.trim();
  });

  // --- Selection of tasks.
  function picked() {
    var out = $("#picked");
    if (!out) return;
    var all = $$("input[name=id]", $("#bulk")), n = all.filter(function (b) { return b.checked; }).length;
    put(out, "selected: " + n);
    var head = $("#pick-all");
    if (head) { head.checked = n > 0 && n === all.length; head.indeterminate = n > 0 && n < all.length; }
  }
  document.addEventListener("change", function (e) {
    if (e.target.id === "pick-all") $$("input[name=id]", $("#bulk")).forEach(function (b) { b.checked = e.target.checked; });
    if (e.target.id === "pick-all" || e.target.name === "id") {
      picked();
      var one = $("#bulk input[value=selected]");
      if (one) one.checked = true;
    }
  });

  // --- Copy, also over plain HTTP, where the browser gives no clipboard to a script.
  document.addEventListener("click", function (e) {
    var button = e.target.closest("[data-copy]");
    if (!button) return;
    var text = document.getElementById(button.dataset.copy).textContent;
    var done = function () { button.classList.add("copied"); say("Copied."); setTimeout(function () { button.classList.remove("copied"); }, 1500); };
    if (navigator.clipboard && window.isSecureContext) { navigator.clipboard.writeText(text).then(done, old); return; }
    old();
    function old() {
      var area = document.createElement("textarea");
      area.value = text;
      area.className = "sr";
      (dialog.open ? dialog : document.body).appendChild(area);
      area.focus();
      area.select();
      var ok = document.execCommand("copy");
      area.remove();
      button.focus();
      if (ok) done(); else say("The browser does not let this page copy.");
    }
  });

  // --- Graphs: size by buttons, and by plus and minus where the graph has the focus.
  function size(box, how) {
    var svg = $("svg.graph", box), pan = $(".pan", box), full = svg.viewBox.baseVal.width, tall = svg.viewBox.baseVal.height;
    var scale = parseFloat(box.dataset.scale || "1");
    if (how === "in") scale = Math.min(3, scale * 1.25);
    if (how === "out") scale = Math.max(0.2, scale / 1.25);
    if (how === "fit") scale = Math.min(1, (pan.clientWidth - 8) / full);
    box.dataset.scale = lastScale = scale;
    svg.setAttribute("width", full * scale);
    svg.setAttribute("height", tall * scale);
  }
  var lastScale = 0, lastPan = null; // of the graph that another takes the place of
  document.addEventListener("htmx:before:swap", function () {
    var pan = $("#frame .pan");
    lastPan = pan && { x: pan.scrollLeft, y: pan.scrollTop };
  });
  function graphs() {
    $$(".graphbox").forEach(function (box) {
      var zoom = $(".zoom", box), pan = $(".pan", box);
      if (!zoom.hidden) return;
      zoom.hidden = false;
      if (lastScale) { box.dataset.scale = lastScale; size(box, "keep"); }
      if (lastPan) { pan.scrollLeft = lastPan.x; pan.scrollTop = lastPan.y; }
      box.addEventListener("click", function (e) { var b = e.target.closest("[data-zoom]"); if (b) size(box, b.dataset.zoom); });
      pan.addEventListener("keydown", function (e) {
        if (e.key === "+" || e.key === "=") { e.preventDefault(); size(box, "in"); }
        if (e.key === "-") { e.preventDefault(); size(box, "out"); }
      });
    });
  }

  // --- Time machine: the slider, its buttons and the row that is shown go together. The form asks the server.
  var player = $("#player"), saidRow = "";
  function rowTo(where) {
    var at = Number(player.value), frame = $("#frame");
    return { first: 1, back: at - 1, forward: at + 1, last: Number(player.max), before: Number(frame.dataset.before), after: Number(frame.dataset.after) }[where];
  }
  function played() {
    var frame = $("#frame");
    if (!player || !frame) return;
    player.max = frame.dataset.rows; // a task that goes on has more of them now
    put($("#player-rows"), number(Number(player.max)));
    $$("[data-go]").forEach(function (a) {
      var to = rowTo(a.dataset.go), can = to >= 1 && to <= Number(player.max) && to !== Number(player.value);
      if (can) { a.removeAttribute("aria-disabled"); a.href = "?at=" + to; } else a.setAttribute("aria-disabled", "true");
    });
    put($("#player-row"), number(Number(player.value)));
    player.setAttribute("aria-valuetext", frame.dataset.say);
    var text = frame.dataset.say + " " + ($("#shift") ? $("#shift").textContent.replace(/\s+/g, " ").trim() : "");
    if (saidRow && saidRow !== text) say(text.trim());
    saidRow = text;
  }
  if (player) {
    player.value = $("#frame").dataset.at; // a browser that comes back may have kept another
    player.addEventListener("input", function () { put($("#player-row"), number(Number(player.value))); });
    document.addEventListener("click", function (e) {
      var a = e.target.closest("[data-go]");
      if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return;
      e.preventDefault();
      var to = rowTo(a.dataset.go);
      if (!(to >= 1 && to <= Number(player.max)) || to === Number(player.value)) return;
      player.value = to;
      player.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }

  // --- Plots.
  var drawn = {}, points = [], holder = $("#points");
  var lines = { throughput: ["c", "e"], backlog: ["b"], latency: ["p", "q"] };
  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function plots() {
    if (!holder || !window.uPlot || points.length < 2) return;
    Object.keys(lines).forEach(function (id) {
      var box = $("[data-plot=" + id + "]");
      if (drawn[id]) drawn[id].destroy();
      box.textContent = "";
      var axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      drawn[id] = new uPlot({
        width: box.clientWidth, height: 130, padding: [null, 18, null, null], legend: { show: false }, cursor: { y: false },
        scales: { x: { time: true }, y: { range: function (u, low, high) { return [0, Math.max(1, high * 1.1)]; } } },
        axes: [Object.assign({ space: 70, size: 24, values: function (u, at, i, space, apart) { return at.map(function (s) { return absolute(new Date(s * 1e3)).slice(11, apart < 60 ? 19 : 16); }); } }, axis),
          // As wide as its widest label.
          Object.assign({ space: 30, values: function (u, at) { return at.map(number); }, size: function (u, texts) { return width(u.ctx, axis.font, texts || [""]) + 14; } }, axis)],
        tzDate: function (s) { return local ? new Date(s * 1e3) : uPlot.tzDate(new Date(s * 1e3), "Etc/UTC"); },
        series: [{}].concat(lines[id].map(function (k, i) { return { stroke: colour(i ? "--k1" : "--k0"), width: 1.5, points: { show: false } }; }))
      }, data(id), box);
    });
  }
  function width(ctx, font, texts) {
    ctx.save();
    ctx.font = font;
    var widest = Math.max.apply(null, texts.map(function (t) { return ctx.measureText(t).width; }));
    ctx.restore();
    return Math.ceil(widest);
  }
  function value(p, k) { return k in p && !(p.g && (k === "c" || k === "e")) ? p[k] : null; }
  function data(id) {
    var all = []; // where nothing was looked at stands a point without values, which breaks the lines
    points.forEach(function (p) { if (p.g) all.push({ t: p.t - 0.5 }); all.push(p); });
    return ["t"].concat(lines[id]).map(function (k) { return all.map(function (p) { return value(p, k); }); });
  }
  function number(v) {
    if (v === null) return "–";
    if (v >= 100 || v === Math.trunc(v)) return String(Math.round(v)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
    return v >= 10 ? v.toFixed(1) : v.toFixed(2);
  }
  function newPoints(more) {
    if (!holder || !more) return;
    var last = points.length ? points[points.length - 1].t : 0;
    if (more.length && more[more.length - 1].t < last) { // a clock was set back: what lies ahead of it is no more
      last = 0;
      points = points.filter(function (p) { return p.t < more[0].t; });
    }
    more = more.filter(function (p) { return p.t > last; });
    if (!more.length) return;
    points = points.concat(more).slice(-600);
    Object.keys(lines).forEach(function (id) {
      var p = points[points.length - 1];
      lines[id].forEach(function (k, i) { put($("#plot-" + id + " [data-now='" + i + "']"), (k === "b" && p.m ? "≥ " : "") + number(value(p, k))); });
      var body = $("[data-rows=" + id + "]");
      body.textContent = "";
      points.slice(-12).reverse().forEach(function (p) {
        var row = body.insertRow(), head = document.createElement("th"), t = document.createElement("time");
        head.scope = "row"; t.className = "x"; t.dateTime = new Date(p.t * 1e3).toISOString(); t.textContent = absolute(new Date(p.t * 1e3), true);
        head.appendChild(t); row.appendChild(head);
        lines[id].forEach(function (k) { var c = row.insertCell(); c.className = "num"; c.textContent = number(value(p, k)); });
      });
      if (drawn[id]) drawn[id].setData(data(id));
    });
    if (!drawn.backlog) plots();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plots);
  if (window.ResizeObserver && holder) {
    new ResizeObserver(function () { Object.keys(drawn).forEach(function (id) { drawn[id].setSize({ width: $("[data-plot=" + id + "]").clientWidth, height: 130 }); }); }).observe($(".beside"));
  }

  // After an action the page of its task is read again and again until the task has ended, for a minute, while no one is at
  // work in it.
  function follow(wait) {
    if (!window.htmx || !$("#unended") || wait > 20000) return;
    setTimeout(function () {
      if (document.hidden || dialog.open || $("#main").contains(document.activeElement)) { follow(wait); return; }
      var next = function () { follow(wait * 1.5); };
      htmx.ajax("GET", location.href, { target: "#main", select: "#main", swap: "outerHTML" }).then(next, next);
    }, wait);
  }
  if ($("#told .told")) follow(1000);

  // --- Live: one stream for a tab that is seen and not paused.
  var source = null, retry = 0, lostAt = 0, heard = 0, refusal = "", url = document.body.dataset.live;
  var paused = sessionStorage.getItem("duly-paused") === "1", pauseButton = $("#pause-live"), needsText = null;
  function banner(text, fresh) {
    var b = $("#banner");
    b.hidden = !text;
    put(b, text || "");
    document.body.classList.toggle("stale", Boolean(text) && !fresh);
  }
  function lost() {
    if (!lostAt) lostAt = now();
    var old = " What you see is " + Math.round((now() - readAt()) / 1000) + " s old or more";
    banner(refusal ? refusal + old + "." : "Duly cannot be reached since " + absolute(new Date(lostAt)) + "." + old + "; it comes back by itself.");
  }
  // An answer that is no stream says why in a page: that one has to sign in again, or that there are too many.
  function refused() {
    var enough = new AbortController();
    fetch(url, { signal: enough.signal }).then(function (r) {
      if (!r.ok) return r.text();
      enough.abort();
      return "";
    }).then(function (text) { return text && said(new DOMParser().parseFromString(text, "text/html")); }, function () { return ""; })
      .then(function (text) { refusal = text; if (lostAt) lost(); });
  }
  function open() {
    clearTimeout(retry);
    if (!url || source || paused || document.hidden) return;
    source = new EventSource(url);
    hears();
    source.addEventListener("beat", hears);
    source.addEventListener("live", function (e) { hears(); live(JSON.parse(e.data)); });
    source.onerror = function () {
      lost();
      if (source && source.readyState === EventSource.CLOSED) { source = null; retry = setTimeout(open, 4000); refused(); }
    };
  }
  // A node that lost its power, or its way to here, ends no stream: one that says nothing for longer than two beats is none.
  var deafAfter = 40000;
  function hears() { heard = performance.now(); }
  function listens() {
    if (!source || performance.now() - heard < deafAfter) return;
    lost();
    close();
    open();
  }
  function close() {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
  }
  function live(e) {
    lostAt = 0;
    refusal = "";
    if ($("#needs")) read(e.at);
    banner(e.trouble ? "Duly answers, but " + e.trouble + ". What you see was read at " + absolute(readAt()) + "." : held || e.warn || "", !e.trouble && !held);
    var pill = $("#needs-pill");
    pill.hidden = !e.count;
    pill.textContent = e.count;
    pill.title = e.count + " things need you";
    var needs = $("#needs");
    if (needs && !needs.contains(document.activeElement)) {
      needs.innerHTML = e.needs; // made and escaped by the server's template
      var text = e.count ? e.count + " things need your attention" : "Nothing needs your attention";
      if (needsText !== null && needsText !== text) say(text);
      needsText = text;
      times(needs);
    }
    var counted = $("#counted time");
    if (counted) { counted.dateTime = e.at; times($("#counted")); }
    Object.keys(e.states || {}).forEach(function (s) { put($("[data-state=" + s + "]"), e.states[s]); });
    newPoints(e.points);
    var op = $("#op-tally"), runs = op && e.ops[op.dataset.op];
    if (runs && op.dataset.moves) op.innerHTML = runs; // the same
    // One that began or ceased to run has another state, and other buttons. What cannot be read now is with the next event.
    else if (op && (runs || op.dataset.moves) && window.htmx) htmx.ajax("GET", location.href, { target: "#op", select: "#op", swap: "outerHTML" });
  }
  function pauseWord() {
    if (!pauseButton) return;
    pauseButton.setAttribute("aria-pressed", String(paused));
    put($("span", pauseButton), paused ? "Paused" : "Pause");
  }
  if (pauseButton) pauseButton.addEventListener("click", function () {
    paused = !paused;
    try { sessionStorage.setItem("duly-paused", paused ? "1" : "0"); } catch (e) { /* it holds for this page */ }
    pauseWord();
    if (paused) close(); else open();
    say(paused ? "Live numbers are paused." : "Live numbers go on.");
  });
  document.addEventListener("visibilitychange", function () { if (document.hidden) close(); else { open(); times(); } });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", function (e) {
    if (e.persisted) $$("[data-sent]").forEach(function (f) { delete f.dataset.sent; });
    open();
  });
  setInterval(function () { listens(); if (lostAt && !document.hidden && !paused) lost(); }, 1000);

  if (holder) points = JSON.parse(holder.dataset.points) || [];
  zone(); theme(); pauseWord(); picked(); graphs(); played(); plots(); open();
})();
