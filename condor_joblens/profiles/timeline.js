// The script of a time line: fits it to the window and zooms. All it knows is in the attributes of the picture.
"use strict";
(function () {
  const svg = document.documentElement;
  const axis = JSON.parse(svg.getAttribute("data-axis"));
  const LETTER = 6.62, LEAST_LETTERS = 3, LEAST_SECONDS = 2e-5, PIXELS_A_TICK = 120, DRAGGED = 5;
  const bars = Array.from(document.querySelectorAll("g.b"), function (g) {
    const place = g.getAttribute("data-t").split(" ").map(Number);
    return {
      g: g, start: place[0], end: place[0] + place[1], rect: g.querySelector("rect"), text: g.querySelector("text"),
      name: g.getAttribute("data-n"),
    };
  });
  const marks = Array.from(document.querySelectorAll("g.m[data-t]"), function (g) {
    const y = g.getAttribute("transform").split(",")[1];
    return { g: g, at: Number(g.getAttribute("data-t")), y: y };
  });
  const curves = Array.from(document.querySelectorAll("svg.c"));
  const rules = Array.from(document.querySelectorAll("svg > line.rule"));
  const lines = Array.from(document.querySelectorAll("text.line"), function (line) {
    const whole = document.createElementNS(svg.namespaceURI, "title");
    whole.textContent = line.textContent;
    line.appendChild(whole); // what the mouse shows of a line that is cut
    return { shown: line.firstChild, whole: whole.textContent, line: line };
  });
  const details = document.getElementById("details"), reset = document.getElementById("reset");
  const chosen = document.getElementById("chosen"), ticks = document.getElementById("ticks");
  const HELP = "a click on a bar, or a drag, shows that time; Esc shows all";
  const height = Number(svg.getAttribute("height"));
  let from = 0, until = axis.seconds, grabbed = null, wasDragged = false;

  function wide() {
    return Math.max(400, window.innerWidth || 1200) - axis.gutter - axis.margin;
  }

  function fitted(name, w) {
    const letters = Math.floor((w - 6) / LETTER);
    if (letters < LEAST_LETTERS) return "";
    return name.length <= letters ? name : name.slice(0, letters - 2) + "..";
  }

  function layout() {
    const w = wide(), whole = w + axis.gutter + axis.margin, scale = w / (until - from);
    svg.setAttribute("width", whole);
    svg.setAttribute("viewBox", "0 0 " + whole + " " + height);
    for (const b of bars) {
      const isShown = b.start <= until && b.end >= from;
      b.g.classList.toggle("hidden", !isShown);
      if (!isShown) continue;
      const x = axis.gutter + (Math.max(b.start, from) - from) * scale;
      const size = Math.max(0.8, (Math.min(b.end, until) - Math.max(b.start, from)) * scale);
      b.rect.setAttribute("x", x.toFixed(2));
      b.rect.setAttribute("width", size.toFixed(2));
      b.text.setAttribute("x", (x + 3).toFixed(2));
      b.text.textContent = fitted(b.name, size);
    }
    for (const m of marks) {
      const isShown = m.at >= from && m.at <= until;
      m.g.classList.toggle("hidden", !isShown);
      if (isShown) m.g.setAttribute("transform", "translate(" + (axis.gutter + (m.at - from) * scale).toFixed(2) + "," + m.y);
    }
    for (const c of curves) {
      c.setAttribute("width", w);
      c.setAttribute("viewBox", from + " 0 " + (until - from) + " 1");
    }
    for (const r of rules) r.setAttribute("x2", whole - axis.margin);
    for (const each of lines) {
      const size = each.line.classList.contains("title") ? 15 / 11 : 1;
      each.shown.data = fitted(each.whole, (whole - 2 * axis.margin) / size);
    }
    reset.setAttribute("x", whole - axis.margin);
    reset.classList.toggle("hidden", from === 0 && until === axis.seconds);
    drawTicks(w, scale);
  }

  function drawTicks(w, scale) {
    const least = (until - from) / Math.max(1, Math.floor(w / PIXELS_A_TICK));
    const step = axis.steps.find(function (each) { return each >= least; }) || Math.ceil(least / 86400) * 86400;
    const local = axis.begun + axis.zone;
    // a time of today has a quarter of a microsecond as its last digit: what is small is reckoned from the begin
    const phase = (Math.ceil(local / step) * step - local) % step;
    ticks.replaceChildren();
    for (let n = Math.ceil((from - phase) / step); phase + n * step <= until; n++) {
      const at = phase + n * step, x = (axis.gutter + (at - from) * scale).toFixed(1);
      const line = document.createElementNS(svg.namespaceURI, "line");
      const text = document.createElementNS(svg.namespaceURI, "text");
      const places = { x1: x, x2: x, y1: axis.top - 12, y2: height - 30, class: "rule" };
      for (const name in places) line.setAttribute(name, places[name]);
      const label = { x: x, y: axis.top - 16, class: "tick", "text-anchor": "middle" };
      for (const name in label) text.setAttribute(name, label[name]);
      text.textContent = clock(local + at, step);
      ticks.append(line, text);
    }
  }

  function clock(seconds, step) {
    let digits = 0;
    while (digits < 6 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
    const units = Math.round(seconds * 10 ** digits), day = 86400 * 10 ** digits;
    const whole = Math.floor((units % day) / 10 ** digits);
    const two = function (value) { return String(value).padStart(2, "0"); };
    const fraction = digits ? "." + String(units % 10 ** digits).padStart(digits, "0") : "";
    return two(Math.floor(whole / 3600)) + ":" + two(Math.floor(whole / 60) % 60) + ":" + two(whole % 60) + fraction;
  }

  function show(start, end) {
    const span = Math.min(Math.max(end - start, LEAST_SECONDS), axis.seconds);
    from = Math.min(Math.max(0, start), axis.seconds - span);
    until = from + span;
    layout();
  }

  function timeAt(x) {
    return from + (Math.min(Math.max(x - axis.gutter, 0), wide()) / wide()) * (until - from);
  }

  svg.addEventListener("wheel", function (event) {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    const at = timeAt(event.clientX), by = event.deltaY + event.deltaX > 0 ? 1.25 : 0.8;
    show(at - (at - from) * by, at + (until - at) * by);
  }, { passive: false });

  svg.addEventListener("mousedown", function (event) {
    wasDragged = false;
    if (event.button === 0 && event.clientX > axis.gutter) grabbed = event.clientX;
  });
  window.addEventListener("mousemove", function (event) {
    if (grabbed === null) return;
    const x = Math.min(grabbed, event.clientX), w = Math.abs(event.clientX - grabbed);
    wasDragged = wasDragged || w > DRAGGED;
    chosen.classList.toggle("hidden", !wasDragged);
    chosen.setAttribute("x", x);
    chosen.setAttribute("width", w);
    if (wasDragged) event.preventDefault();
  });
  window.addEventListener("mouseup", function (event) {
    if (grabbed !== null && wasDragged) {
      const times = [timeAt(grabbed), timeAt(event.clientX)].sort(function (a, b) { return a - b; });
      show(times[0], times[1]);
    }
    grabbed = null;
    chosen.classList.add("hidden");
  });
  svg.addEventListener("click", function (event) {
    const g = event.target.closest && event.target.closest("g.b");
    const bar = g && !wasDragged && bars.find(function (b) { return b.g === g; });
    if (bar) show(bar.start - (bar.end - bar.start) * 0.02, bar.end + (bar.end - bar.start) * 0.02);
  });
  svg.addEventListener("mouseover", function (event) {
    const g = event.target.closest && event.target.closest("g.b, g.m[data-t]");
    const title = g && g.querySelector("title");
    details.textContent = title ? fitted(title.textContent.replace(/\n/g, " \u00b7 "), wide() + axis.gutter - 90) : HELP;
  });
  for (const c of curves) {
    const values = JSON.parse(c.getAttribute("data-v"));
    c.addEventListener("mousemove", function (event) {
      const at = timeAt(event.clientX);
      const found = values.find(function (each) { return each[0] >= at; }) || values[values.length - 1];
      details.textContent = c.getAttribute("data-n").replace("{}", found[1]);
    });
  }
  reset.addEventListener("click", function () { show(0, axis.seconds); });
  window.addEventListener("keydown", function (event) {
    if (event.key === "Escape") show(0, axis.seconds);
  });
  window.addEventListener("resize", layout);
  details.textContent = HELP;
  layout();
})();
