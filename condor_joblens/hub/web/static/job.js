// Draws a job's series, and again whenever the page has something new. What was never sent is drawn as a gap: no line, and a grey band.
"use strict";
(() => {
  const place = document.getElementById("charts");
  const said = document.getElementById("gaps");
  const CHARTS = [["Cores", ["Cores"], 1], ["Memory, MiB", ["ResidentBytes"], 1048576],
    ["Files, MiB so far", ["ReadBytes", "WriteBytes"], 1048576], ["TCP, MiB so far", ["SentBytes", "ReceivedBytes"], 1048576]];
  const NAMES = { Cores: "Cores", ResidentBytes: "Resident", ReadBytes: "Read", WriteBytes: "Written", SentBytes: "Sent",
    ReceivedBytes: "Received" };
  // Those that were picked: any metric, in its own unit.
  for (const { path, unit } of JSON.parse(place.dataset.more || "[]")) {
    CHARTS.push([`${path}, ${unit === "bytes" ? "MiB" : unit}`, [path], unit === "bytes" ? 1048576 : 1]);
    NAMES[path] = path;
  }
  const COLORS = ["#2a7ab0", "#d0701f"];
  const drawn = new Map();

  // The columns of a chart, with a point without a value wherever there is a gap.
  function columns(series, names, scale) {
    const found = [[], ...names.map(() => [])];
    const after = new Map(series.gaps.map((gap) => [gap.after, gap]));
    series.time.forEach((time, place) => {
      found[0].push(time);
      names.forEach((name, at) => {
        const value = series[name][place];
        found[at + 1].push(value === null ? null : value / scale);
      });
      const gap = after.get(place);
      if (gap) {
        found[0].push((gap.begin + gap.end) / 2);
        names.forEach((_, at) => found[at + 1].push(null));
      }
    });
    return found;
  }

  function ink() {
    return getComputedStyle(document.body).color;
  }

  function bands(chart) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.fillStyle = "rgba(128, 128, 128, 0.25)";
    for (const gap of chart.gaps || []) {
      const left = Math.max(bbox.left, chart.valToPos(gap.begin, "x", true));
      const right = Math.min(bbox.left + bbox.width, chart.valToPos(gap.end, "x", true));
      if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
    }
    ctx.restore();
  }

  // Where eight in ten of the cluster's other jobs were at the same age; and lines where something happened.
  function behind(chart) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    chart.names.forEach((name, at) => {
      const found = chart.band && chart.band[name];
      if (!found) return;
      const points = chart.band.time.map((time, place) => [time, found.low[place], found.high[place]]).filter((point) => point[1] !== null);
      ctx.beginPath();
      for (const [time, low] of points) ctx.lineTo(chart.valToPos(time, "x", true), chart.valToPos(low / chart.unit, "y", true));
      for (const [time, , high] of points.reverse()) ctx.lineTo(chart.valToPos(time, "x", true), chart.valToPos(high / chart.unit, "y", true));
      ctx.globalAlpha = 0.18;
      ctx.fillStyle = COLORS[at];
      ctx.fill();
    });
    ctx.globalAlpha = 0.4;
    ctx.setLineDash([4, 4]);
    for (const mark of chart.marks) {
      const left = chart.valToPos(mark.time, "x", true);
      ctx.strokeStyle = ink();
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  // The greatest and least of the chart's lines and of its band.
  function range(chart, least, most) {
    const all = [least, most].filter((value) => value !== null && value !== undefined);
    // of several samples of the second in which the axis ends, uPlot asks one
    const [times, ...lines] = chart.data || [[]];
    for (const line of lines)
      for (let at = times.length - 1; at >= 0 && times[at] === times[times.length - 1]; at -= 1)
        if (line[at] !== null && line[at] !== undefined) all.push(line[at]);
    for (const name of chart.names || []) {
      const found = chart.band && chart.band[name];
      if (found) for (const value of [...found.low, ...found.high]) if (value !== null) all.push(value / chart.unit);
    }
    if (all.length === 0) return [null, null];
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return uPlot.rangeNum(low, high, 0.1, true);
  }

  function draw({ series, band, timeline }) {
    if (series.time.length === 0) {
      said.textContent = "No samples of this job are kept, so there are no charts.";
      return;
    }
    for (const [title, names, scale] of CHARTS) {
      const data = columns(series, names, scale);
      let chart = drawn.get(title);
      if (!chart) {
        const box = document.createElement("div");
        box.className = "chart";
        box.setAttribute("role", "img");
        box.setAttribute("aria-label", title + " over time");
        place.append(box);
        const axis = { stroke: ink, grid: { stroke: "rgba(128, 128, 128, 0.2)" } };
        const clock = (_, times) => times.map((time) => new Date(time * 1000).toTimeString().slice(0, 8));
        chart = new uPlot({
          title, width: box.clientWidth || 400, height: 220, axes: [{ ...axis, values: clock, space: 80 }, { ...axis, size: 64 }],
          series: [{ value: (_, time) => (time === null ? "–" : clock(null, [time])[0]) }, ...names.map((name, at) => ({ label: NAMES[name], stroke: COLORS[at], width: 2, spanGaps: false }))],
          scales: { y: { range } }, hooks: { drawAxes: [bands, behind] },
        }, data, box);
        drawn.set(title, chart);
        new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height: 220 })).observe(box);
      }
      Object.assign(chart, { gaps: series.gaps, band, names, unit: scale, marks: timeline.marks });
      chart.setData(data);
    }
    const missing = series.gaps.reduce((sum, gap) => sum + gap.missing, 0);
    const declared = series.gaps.filter((gap) => gap.is_declared).length;
    let text = series.gaps.length === 0 ? "" : `${missing} ${missing === 1 ? "sample" : "samples"} never came: grey in the charts. `
      + `Gaps: ${series.gaps.length}, of which the node declared ${declared}.`;
    const others = band ? ` Shaded: where eight in ten of ${band.runs} other jobs of its cluster were at the same age.` : "";
    text += others;
    if (said.textContent !== text) said.textContent = text;
    place.dataset.points = String(series.time.length);
  }

  function later(text) {
    said.textContent = text;
    setTimeout(again, 5000);
  }

  let isAsking = false;
  async function again() {
    if (isAsking) return;
    isAsking = true;
    try {
      const answer = await fetch(place.dataset.url, { credentials: "same-origin" });
      if (answer.ok) draw(await answer.json());
      else if (!drawn.size) later("The hub is busy: charts come once it has time for them.");
    } catch (error) {
      said.textContent = "The hub does not answer.";
    }
    isAsking = false;
  }
  document.getElementById("live").addEventListener("renewed", again);
  said.textContent = "Charts are being made.";
  again();
})();
