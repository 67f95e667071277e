/**
 * Markdown as it streams in, as nodes and never as HTML: what is written once is not drawn again,
 * and tags stay text. Addresses come from a model, so only harmless schemes become links, and
 * nothing is loaded: a picture of another host would reveal the conversation to that host.
 */

import { copy } from "./media.js";
import * as smd from "./vendor/streaming-markdown.js";

const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** @param {string} address */
export function isHarmless(address) {
  try {
    return SCHEMES.has(new URL(address).protocol); // a relative address has no scheme: refused
  } catch {
    return false;
  }
}

/** @param {HTMLElement} root */
function renderer(root) {
  const made = smd.default_renderer(root);
  const { add_token } = made;
  /** @type {typeof made.add_token} */
  made.add_token = (data, type) => {
    add_token(data, type === smd.IMAGE ? smd.LINK : type);
    const node = data.nodes[data.index];
    const box = node.tagName === "CODE" ? node.parentElement : node;
    if (box?.tagName === "PRE" || box?.tagName === "TABLE") enclose(box);
    // Headings of a reply stand below those of the page.
    if (/^H[1-6]$/.test(node.tagName)) node.setAttribute("aria-level", `${+node.tagName[1] + 2}`);
  };
  made.set_attr = (data, type, value) => {
    const node = data.nodes[data.index];
    if (type === smd.HREF || type === smd.SRC) {
      if (!isHarmless(value)) return;
      node.setAttribute("href", value);
      node.setAttribute("target", "_blank");
      node.setAttribute("rel", "noopener noreferrer nofollow");
      if (type === smd.SRC && !node.textContent) node.append(value);
    } else if (type === smd.START && /^\d{1,9}$/.test(value)) node.setAttribute("start", value);
    else if (type === smd.CHECKED) node.setAttribute("checked", "");
  };
  return made;
}

/** A box that scrolls in itself; code gets a button to copy it. @param {Element} node */
function enclose(node) {
  const box = document.createElement("div");
  box.className = "box";
  node.replaceWith(box);
  const view = document.createElement("div");
  view.className = "scroll";
  view.tabIndex = 0; // to scroll by keys
  view.setAttribute("role", "group");
  view.setAttribute("aria-label", node.tagName === "PRE" ? "Code" : "Table");
  view.append(node);
  box.append(view);
  if (node.tagName !== "PRE") return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", () => copy(node.textContent ?? "", button));
  box.append(button);
}

/** Writes a growing text into an element. */
export class MarkdownWriter {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.written = "";
    this.isEnded = false;
    this.parser = smd.parser(renderer(root));
  }

  #restart() {
    this.root.replaceChildren();
    this.written = "";
    this.isEnded = false;
    this.parser = smd.parser(renderer(this.root));
  }

  /** @param {string} text  All of it, not only what is new. @param {boolean} isWhole */
  write(text, isWhole) {
    if (this.isEnded && text === this.written) return;
    if (this.isEnded || !text.startsWith(this.written)) this.#restart();
    smd.parser_write(this.parser, text.slice(this.written.length));
    this.written = text;
    if (isWhole) {
      smd.parser_end(this.parser);
      this.isEnded = true;
    }
  }
}
