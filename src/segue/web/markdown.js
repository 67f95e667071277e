/**
 * Markdown as it streams in, as nodes and never as HTML: what is written once is not drawn again,
 * and tags stay text. Addresses come from a model, so only harmless schemes become links, and
 * nothing is loaded: a picture of another host would reveal the conversation to that host.
 * The library parses the blocks; inside of them, `inline.js` decides what is Markdown at all.
 */

import {
  CLOSE, CODE, EMPHASIS, LINK, MARKS, NOTHING, SHOWN, STRIKE, STRONG, asWritten, clean, isHarmless, readInline, verbatim,
} from "./inline.js";
import { copy } from "./media.js";
import * as smd from "./vendor/streaming-markdown.js";

/** @type {Record<string, string>} */
const TAGS = { [LINK]: "a", [CODE]: "code", [STRIKE]: "s", [EMPHASIS]: "em", [STRONG]: "strong" };

const RULE = /^ *(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const FENCE = /^[ \t]*`{3,}[^`]*$/;
const ROW = /^[ \t]*\|/;
const ROW_OF_LINES = /^[ \t]*\|[ \t|:-]*-[ \t|:-]*$/;
const PREFIX = /^[ \t]*(?:>[ \t]*)*(?:(?:[-+*]|\d+\.) (?:\[[ x]\] | *)|#{1,6} +)?/;
const STARTS_BLOCK = /^[ \t]*(?:$|>|\||[-+*] |\d+\. |#{1,6} )/;
/** The start of a line that may still become a list, a rule, a heading or code. */
const UNDECIDED =
  /^[ \t]*(?:>[ \t]*)*(?:[-*_ \t]*|\+|#{1,6} *|\d+\.?|`{1,2}|`{3,}[^`]*|(?:[-+*]|\d+\.) +(?:\[[ x]?\]?)?)$/;

/** @typedef {"" | "text" | "row" | "code"} Kind  Of the block before. */
/**
 * @typedef {object} Block
 * @property {string} out  For the library.
 * @property {number} length  How much of the text `out` covers.
 * @property {boolean} isDone  Whether the next block starts there.
 * @property {Kind} kind
 */

/** @param {HTMLElement} root */
function renderer(root) {
  const made = smd.default_renderer(root);
  const { add_token } = made;
  /** @type {HTMLElement[]} */ const open = [];
  /** @type {string | null} */ let address = null;
  /** @type {typeof made.add_token} */
  made.add_token = (data, type) => {
    if (type === smd.LINE_BREAK) {
      const place = open.at(-1) ?? data.nodes[data.index];
      data.nodes[++data.index] = place.appendChild(document.createElement("br"));
      return;
    }
    open.length = 0;
    add_token(data, type);
    const node = data.nodes[data.index];
    const box = node.tagName === "CODE" ? node.parentElement : node;
    if (box?.tagName === "PRE" || box?.tagName === "TABLE") enclose(box);
    // Headings of a reply stand below those of the page.
    if (/^H[1-6]$/.test(node.tagName)) node.setAttribute("aria-level", `${+node.tagName[1] + 2}`);
  };
  made.set_attr = (data, type, value) => {
    const node = data.nodes[data.index];
    if (type === smd.START && /^\d{1,9}$/.test(value)) node.setAttribute("start", value);
    else if (type === smd.CHECKED) node.setAttribute("checked", "");
  };
  made.add_text = (data, text) => {
    for (const piece of text.split(MARKS)) {
      const place = open.at(-1) ?? data.nodes[data.index];
      if (TAGS[piece]) open.push(place.appendChild(document.createElement(TAGS[piece])));
      else if (piece === CLOSE) open.pop();
      else if (piece === SHOWN) [address] = [null, point(place, address ?? "")];
      else if (piece && piece !== NOTHING) {
        if (address === null) place.append(asWritten(piece));
        else address += asWritten(piece);
      }
      if (piece === LINK) address = "";
    }
  };
  return made;
}

/** @param {HTMLElement} node @param {string} address */
function point(node, address) {
  if (!isHarmless(address)) return;
  node.setAttribute("href", address);
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
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

/**
 * The block at the start of a text. @param {string} text @param {boolean} isWhole
 * @param {Kind} before @param {boolean} isFence  Whether the text is in fenced code. @param {boolean} isList
 * @returns {Block}
 */
function readBlock(text, isWhole, before, isFence, isList) {
  const line = lineOf(text, 0);
  const isOpen = line.length === text.length && !isWhole;
  /** @param {string} out @param {Kind} kind */
  const all = (out, kind) => ({ out: isOpen ? out : `${out}\n`, length: line.length + (isOpen ? 0 : 1), isDone: !isOpen, kind });
  const held = { out: "", length: 0, isDone: false, kind: before };
  if (isFence) {
    if (!/^[ \t]*`*[ \t]*$/.test(line)) return all(verbatim(line), "code");
    return isOpen ? held : all(line.trimEnd(), "code");
  }
  if (isOpen && UNDECIDED.test(line)) return held;
  if (!line.trim()) return all("", "");
  if (RULE.test(line)) return all(line.trimEnd(), "");
  if (FENCE.test(line)) return all(line, "code");
  if (ROW.test(line)) {
    const isRow = before === "row" || startsTable(text, line, isWhole);
    if (isRow === null) return held;
    if (isRow) return readRow(line, isOpen, all);
  }
  const [prefix] = /** @type {string[]} */ (PREFIX.exec(line));
  if (before !== "text" && !isList && !prefix.trim() && /^(?: {4}|\t)/.test(line)) return all(verbatim(line), "");
  return readText(text, isWhole, prefix, before === "row" ? "\n" : "");
}

/** @param {string} text @param {number} from */
function lineOf(text, from) {
  const end = text.indexOf("\n", from);
  return text.slice(from, end < 0 ? text.length : end);
}

/** A table's head is followed by a row of lines; null if that is not known yet. @param {string} text @param {string} line @param {boolean} isWhole */
function startsTable(text, line, isWhole) {
  const next = lineOf(text, line.length + 1);
  const isKnown = isWhole || line.length + 1 + next.length < text.length || /[^ \t|:-]/.test(next);
  return isKnown ? ROW_OF_LINES.test(next) : null;
}

/** @param {string} line @param {boolean} isOpen @param {(out: string, kind: Kind) => Block} all */
function readRow(line, isOpen, all) {
  if (isOpen && /^[ \t|:-]*$/.test(line)) return { ...all("", "row"), length: 0 };
  if (ROW_OF_LINES.test(line)) return all(line.trim(), "row");
  const { out, length } = readInline(line.trim().slice(1), !isOpen, { isRow: true });
  if (!isOpen) return all(`|${out}${out.endsWith("|") ? "" : "|"}`, "row");
  return { ...all(`|${out}`, "row"), length: line.indexOf("|") + 1 + length };
}

/** A paragraph, with the marker of its list, quote or heading. @param {string} text @param {boolean} isWhole @param {string} prefix @param {string} lead @returns {Block} */
function readText(text, isWhole, prefix, lead) {
  let end = lineOf(text, 0).length;
  let isEnded = prefix.includes("#") && end < text.length;
  while (!isEnded && end < text.length) {
    const next = lineOf(text, end + 1);
    const isOpen = end + 1 + next.length === text.length && !isWhole;
    if (isOpen && UNDECIDED.test(next)) break;
    isEnded = STARTS_BLOCK.test(next) || FENCE.test(next) || RULE.test(next);
    if (!isEnded) end += 1 + next.length;
  }
  isEnded ||= isWhole;
  const { out, length } = readInline(text.slice(prefix.length, end), isEnded);
  const start = lead + prefix + NOTHING; // so that the block is there before its text is decided
  if (!isEnded) return { out: start + out, length: prefix.length + length, isDone: false, kind: "text" };
  return { out: `${start}${out}\n`, length: end + 1, isDone: true, kind: "text" };
}

/** Writes a growing text into an element. */
export class MarkdownWriter {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.written = "";
    this.isEnded = false;
    this.drawing = new Drawing(root);
  }

  /** @param {string} text  All of it, not only what is new. @param {boolean} isWhole */
  write(text, isWhole) {
    if (this.isEnded && text === this.written) return;
    if (this.isEnded || !text.startsWith(this.written)) this.drawing = new Drawing(this.root);
    this.drawing.write(clean(text), isWhole);
    this.written = text;
    this.isEnded = isWhole;
  }
}

/** One text in an element, from its start to its end. */
class Drawing {
  /** @param {HTMLElement} root */
  constructor(root) {
    root.replaceChildren();
    this.renderer = renderer(root);
    this.parser = smd.parser(this.renderer);
    /** Where the block starts that is not done. */ this.from = 0;
    /** What the parser got of that block. */ this.given = "";
    /** @type {Kind} */ this.before = "";
    /** What more text decides; until then it is shown as written. */ this.rest = document.createTextNode("");
  }

  /** @param {string} text @param {boolean} isWhole */
  write(text, isWhole) {
    this.rest.remove();
    while (this.from < text.length) {
      const rest = text.slice(this.from);
      const block = readBlock(rest, isWhole, this.before, this.#isIn(smd.CODE_FENCE), this.#isIn(smd.LIST_ITEM));
      smd.parser_write(this.parser, block.out.slice(this.given.length));
      this.given = block.isDone ? "" : block.out;
      if (!block.isDone) return this.#show(rest.slice(block.length), block);
      this.from += block.length;
      this.before = block.kind;
    }
    if (isWhole) smd.parser_end(this.parser);
  }

  /** @param {number} token */
  #isIn(token) {
    return this.parser.tokens.subarray(0, this.parser.len + 1).includes(token);
  }

  /** @param {string} rest @param {Block} block */
  #show(rest, { out, kind }) {
    if (!out || kind === "code") return;
    if (kind === "text") smd.parser_write(this.parser, NOTHING); // the parser keeps its last character back
    this.rest.data = rest;
    const { nodes, index } = this.renderer.data;
    nodes[index].append(this.rest);
  }
}
