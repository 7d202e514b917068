// Keeps the page as the hub has it now: a stream of events, while the page is looked at.
"use strict";
(() => {
  const place = document.getElementById("live");
  const state = document.getElementById("state");
  const PATIENCE = 6000; // milliseconds: streams end each minute, and the browser asks for another at once
  const NOT_LIVE = "Not live: the hub does not answer, or has too many pages open. This page asks again.";
  const logOut = document.querySelector('form[action="/logout"]');
  let source = null;
  let trouble = 0;
  let isLeaving = false;

  function say(text) {
    if (state.textContent !== text) state.textContent = text;
  }

  function show(text) {
    return htmx.swap({ target: place, sourceElement: place, swap: "innerMorph", text });
  }

  // Not while the answer to a log-out is awaited: its stream may end before that comes, and a reload would cancel it.
  function reload() {
    if (!isLeaving) location.reload();
  }

  function open() {
    if (!place.dataset.stream || source || document.hidden) return;
    const opened = new EventSource(place.dataset.stream);
    source = opened;
    opened.addEventListener("gone", (event) => show(event.data));
    opened.addEventListener("part", async (event) => {
      if ("gone" in place.dataset) {
        opened.close();
        reload(); // of what was asked for there was no page yet: only why not
        return;
      }
      clearTimeout(trouble);
      trouble = 0;
      say("");
      await show(event.data);
      place.dispatchEvent(new CustomEvent("renewed"));
    });
    opened.addEventListener("over", () => {
      opened.close();
      reload();
    });
    opened.addEventListener("error", () => {
      if (!trouble) trouble = setTimeout(say, PATIENCE, NOT_LIVE);
      if (opened.readyState !== EventSource.CLOSED) return; // the browser itself asks again
      if (source === opened) source = null;
      setTimeout(again, 5000);
    });
  }

  // Refused: because nobody is logged in any more, or for now.
  async function again() {
    try {
      const answer = await fetch("/alive", { credentials: "same-origin" });
      if (answer.status === 401) {
        reload();
        return;
      }
    } catch (error) {
      // the hub is gone: it is asked again
    }
    open();
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", () => {
    isLeaving = false;
    open();
  });
  if (logOut) {
    logOut.addEventListener("submit", () => {
      isLeaving = true;
      close();
    });
  }
  open();
})();
