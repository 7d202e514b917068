// The script of a flame graph: fits it to the window, zooms and searches. All it knows is in the attributes of the picture.
"use strict";
(function () {
  const svg = document.documentElement;
  const XHTML = "http://www.w3.org/1999/xhtml";
  const MARGIN = 10, LEGEND = 290, LETTER = 6.62, LEAST_LETTERS = 3;
  const frames = Array.from(document.querySelectorAll("g.f"), function (g) {
    const place = g.getAttribute("data-p").split(" ").map(Number);
    const title = g.querySelector("title").textContent;
    return {
      g: g, row: place[0], start: place[1], end: place[1] + place[2], rect: g.querySelector("rect"),
      text: g.querySelector("text"), title: title, name: g.getAttribute("data-n"),
    };
  });
  if (!frames.length) return;
  const all = frames[0];
  const total = all.end - all.start;
  const details = document.getElementById("details");
  const found = document.getElementById("found");
  const reset = document.getElementById("reset");
  const lines = Array.from(document.querySelectorAll("text.line"), function (line) {
    const whole = document.createElementNS(svg.namespaceURI, "title");
    whole.textContent = line.textContent;
    line.appendChild(whole); // what the mouse shows of a line that is cut
    return { shown: line.firstChild, whole: whole.textContent, line: line };
  });
  let zoomed = all;

  function width() {
    return Math.max(400, window.innerWidth || 1200) - 2 * MARGIN;
  }

  function layout() {
    const wide = width();
    svg.setAttribute("width", wide + 2 * MARGIN);
    svg.setAttribute("viewBox", "0 0 " + (wide + 2 * MARGIN) + " " + svg.getAttribute("height"));
    const scale = wide / (zoomed.end - zoomed.start);
    for (const f of frames) {
      const isAbove = f.row <= zoomed.row && f.start <= zoomed.start && f.end >= zoomed.end;
      const start = Math.max(f.start, zoomed.start), end = Math.min(f.end, zoomed.end);
      const isShown = isAbove || (f.row > zoomed.row && start < end);
      f.g.classList.toggle("hidden", !isShown);
      if (!isShown) continue;
      f.g.classList.toggle("above", isAbove && f !== zoomed);
      const x = MARGIN + (start - zoomed.start) * scale, w = (end - start) * scale;
      f.rect.setAttribute("x", x.toFixed(2));
      f.rect.setAttribute("width", Math.max(0.3, w - 0.6).toFixed(2));
      f.text.setAttribute("x", (x + 3).toFixed(2));
      f.text.textContent = fitted(f.name, w);
    }
    reset.classList.toggle("hidden", zoomed === all);
    for (const each of lines) fitLine(each, wide);
    place(wide);
  }

  function boxWidth(wide) {
    return Math.max(90, Math.min(230, wide - LEGEND));
  }

  // what is beside the box leaves it free
  function fitLine(each, wide) {
    const size = each.line.classList.contains("title") ? 15 / 11 : 1;
    const room = wide - (each.line.classList.contains("beside") ? boxWidth(wide) + MARGIN : 0);
    each.shown.data = fitted(each.whole, room / size);
  }

  function fitted(name, w) {
    const letters = Math.floor((w - 6) / LETTER);
    if (letters < LEAST_LETTERS) return "";
    return name.length <= letters ? name : name.slice(0, letters - 2) + "..";
  }

  function percent(samples) {
    return (100 * samples / total).toFixed(2) + " %";
  }

  function zoom(f) {
    zoomed = f;
    layout();
  }

  function search(wanted) {
    const term = wanted.toLowerCase();
    const hits = [];
    for (const f of frames) {
      const isHit = term !== "" && f !== all && f.title.toLowerCase().includes(term);
      f.g.classList.toggle("hit", isHit);
      if (isHit) hits.push(f);
    }
    svg.classList.toggle("searched", term !== "");
    // rows come from the top: what lies below a hit has been counted with it
    let samples = 0, until = [];
    for (const f of hits) {
      if (!until.some(function (u) { return u.start <= f.start && f.end <= u.end; })) {
        until.push(f);
        samples += f.end - f.start;
      }
    }
    found.textContent = term === "" ? "" : hits.length + (hits.length === 1 ? " place, " : " places, ") + percent(samples);
  }

  function frameOf(target) {
    const g = target.closest && target.closest("g.f");
    return g && frames.find(function (f) { return f.g === g; });
  }

  function place(wide) {
    box.setAttribute("x", wide + MARGIN - boxWidth(wide));
    box.setAttribute("width", boxWidth(wide));
    reset.setAttribute("x", wide + MARGIN - 230);
    found.setAttribute("x", wide + MARGIN);
  }

  const box = document.createElementNS(svg.namespaceURI, "foreignObject");
  box.setAttribute("y", 46);
  box.setAttribute("height", 26);
  const input = document.createElementNS(XHTML, "input");
  input.setAttribute("id", "search");
  input.setAttribute("type", "search");
  input.setAttribute("placeholder", "search: function or file");
  input.setAttribute("aria-label", "search: function or file");
  input.addEventListener("input", function () { search(input.value); });
  box.appendChild(input);
  svg.appendChild(box);

  svg.addEventListener("click", function (event) {
    const f = frameOf(event.target);
    if (f) zoom(f);
  });
  svg.addEventListener("mouseover", function (event) {
    const f = frameOf(event.target);
    details.textContent = f ? fitted(f.title.replace(/\n/g, " \u00b7 "), width() - 320) : "";
  });
  reset.addEventListener("click", function () { zoom(all); });
  window.addEventListener("keydown", function (event) {
    if ((event.ctrlKey || event.metaKey) && event.key === "f") {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape") {
      input.value = "";
      search("");
      zoom(all);
    }
  });
  window.addEventListener("resize", layout);
  layout();
})();
