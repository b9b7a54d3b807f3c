// What pages do beside being pages: parts that renew themselves, and one tick for all. Everything works without it.
"use strict";

// A part is asked for only while somebody can see it, and is left alone while the keyboard or a selection is in it.
function isInUse(part) {
  const selection = document.getSelection();
  return (
    (part.contains(document.activeElement) && document.activeElement !== document.body) ||
    (selection && !selection.isCollapsed && part.contains(selection.anchorNode))
  );
}

async function renew(part) {
  const address = new URL(location.href);
  address.searchParams.set("part", "1");
  const answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
  if (answer.status === 401) {
    location.reload();
    return;
  }
  if (!answer.ok) throw new Error(answer.statusText);
  const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-live]");
  if (!found || isInUse(part)) return;
  const places = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  part.replaceChildren(...found.childNodes);
  part.querySelectorAll(".scroll").forEach((box, at) => (box.scrollLeft = places[at] || 0));
}

for (const part of document.querySelectorAll("[data-live]")) {
  const wait = Number(part.dataset.live) * 1000;
  const turn = async () => {
    if (!document.hidden && !isInUse(part)) {
      try {
        await renew(part);
        part.classList.remove("stale");
      } catch {
        part.classList.add("stale"); // it is shown grey until it can be had again
      }
    }
    setTimeout(turn, wait);
  };
  setTimeout(turn, wait);
}

// On a phone the navigation is wider than the window.
document.querySelector("header nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

for (const box of document.querySelectorAll("input[data-all]")) {
  box.hidden = false;
  box.addEventListener("change", () => {
    for (const one of box.form.querySelectorAll(`input[name="${box.dataset.all}"]`)) one.checked = box.checked;
  });
}
