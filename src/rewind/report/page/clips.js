// Clips as buttons that play: a strip of frames inside the page, or the clip's own file next to it.

const strips = await read("explorer-strips");
const addresses = new Map();

const stripAddress = (number) => {
  if (!addresses.has(number)) {
    const bytes = numbers(strips.data[number], Uint8Array);
    addresses.set(number, URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" })));
  }
  return addresses.get(number);
};

const stripOf = (item) => {
  const number = study.items.strip[item];
  const forward = number >= 0 ? number : ~number;
  return forward < strips.data.length ? { number: forward, backwards: number < 0 } : null;
};

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
};

const moving = (item) => {
  const strip = stripOf(item);
  if (!strip) return film(item);
  const shown = element("span", { class: strip.backwards ? "strip backwards" : "strip" });
  shown.style.setProperty("--frames", strips.frames[strip.number]);
  shown.style.backgroundImage = `url(${stripAddress(strip.number)})`;
  return shown;
};

const film = (item) => {
  if (study.kind === "images") return element("img", { src: study.items.clip[item], alt: study.items.id[item], loading: "lazy" });
  const video = element("video", { src: study.items.clip[item], preload: "metadata", playsinline: "", tabindex: "-1" });
  video.muted = true;
  video.loop = true;
  video.addEventListener("error", () => {
    const fault = `clip not found: ${study.items.clip[item]}; this page plays it from the results folder`;
    video.replaceWith(element("span", { class: "fault" }, fault));
  });
  return video;
};

const press = (button, on) => {
  button.setAttribute("aria-pressed", String(on));
  button.querySelector(".sign").textContent = on ? "❚❚" : "▶";
  const video = button.querySelector("video");
  if (video && on) video.play().catch(() => {});
  if (video && !on) video.pause();
};

/** A button with the clip of an item; pressing it plays and stops it. */
const clip = (item) => {
  const sign = element("span", { class: "sign", "aria-hidden": "true" }, "▶");
  sign.hidden = study.kind === "images";
  const id = study.items.id[item];
  const button = element("button", { type: "button", class: "clip", "aria-pressed": "false", "aria-label": `Play ${id}` });
  button.append(moving(item), sign);
  button.addEventListener("click", () => press(button, button.getAttribute("aria-pressed") !== "true"));
  return button;
};

const playAll = (where, on) => where.querySelectorAll("button.clip").forEach((button) => press(button, on));
