// Runs before the first paint: the theme that was chosen, and that there is a script at all.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  try {
    var theme = localStorage.getItem("duly-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch (e) { /* storage may be off: the system's theme then */ }
})();
