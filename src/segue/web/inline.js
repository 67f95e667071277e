/**
 * The inline part of Markdown: a text is read into itself with marks, for the renderer in
 * `markdown.js`. Only what certainly is Markdown becomes a mark; every other character is written as
 * a literal, which no parser after this one reads as Markdown. Nothing here touches the page.
 */

/** ASCII punctuation stands here as literals, in a private range that no keyboard writes. */
const LITERALS = 0x10f000;
const RESERVED = /[\u{10f000}-\u{10f1ff}]/gu;
/** @param {number} number */
const mark = (number) => String.fromCodePoint(0x10f100 + number);
/** `LINK` is followed by the address, `SHOWN`, and its text; `NOTHING` is drawn as nothing. */
export const NOTHING = mark(0);
export const CLOSE = mark(1);
export const LINK = mark(2);
export const SHOWN = mark(3);
export const CODE = mark(4);
export const STRIKE = mark(5);
export const EMPHASIS = mark(6);
export const STRONG = mark(7);
export const MARKS = /([\u{10f100}-\u{10f1ff}])/u;

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
/** A link that is longer than this is shown as written; it bounds what waits for its end. */
const LONGEST_LINK = 4_000;
const PLAIN = /[^!-/:-@[-`{-~h]+/y;
const BEFORE_ADDRESS = /[\s*_~([|\u0080-\uffff]/; // not the quotes of a tag's attribute
const UNSURE = Symbol("more text decides");

/** @typedef {{out: string, end: number}} Span  Up to `end` of the text. */
/** @typedef {{sign: string, size: number, left: number, from: number, at: number, isBoth: boolean, opened: string}} Run */

/** A text without the characters that are reserved for marks, and with \n at the end of its lines. @param {string} text */
export const clean = (text) => text.replace(/\r/g, "").replace(RESERVED, "\ufffd");
/** @param {string} text */
export const verbatim = (text) =>
  text.replace(/[!-/:-@[-`{-~]/g, (sign) => String.fromCodePoint(LITERALS + sign.charCodeAt(0)));
/** The reverse of `verbatim`. @param {string} text */
export const asWritten = (text) =>
  text.replace(RESERVED, (sign) => String.fromCodePoint(/** @type {number} */ (sign.codePointAt(0)) - LITERALS));

/** @param {string} address */
export function isHarmless(address) {
  try {
    return SCHEMES.has(new URL(address).protocol); // a relative address has no scheme: refused
  } catch {
    return false;
  }
}

/**
 * @param {string} text @param {boolean} isEnded  Whether nothing can follow.
 * @param {{isRow?: boolean, isLink?: boolean}} [place]  In a row `|` ends a cell; a link holds no other.
 * @returns {{out: string, length: number}} What is decided, and of how much of the text.
 */
export function readInline(text, isEnded, { isRow = false, isLink = false } = {}) {
  /** @type {(string | Run)[]} */ const out = [];
  /** @type {Run[]} */ const open = [];
  let at = 0;
  while (at < text.length) {
    const found = readPlain(text, at) ?? readSpan(text, at, isEnded, isLink) ?? readRun(text, at, isEnded, out, open);
    if (found === UNSURE) break;
    if (isRow && text[at] === "|" && !found) open.length = 0;
    out.push(found?.out ?? (isRow && text[at] === "|" ? "|" : verbatim(text[at])));
    at = found?.end ?? at + 1;
  }
  const length = isEnded ? at : Math.min(at, open[0]?.from ?? at);
  const decided = isEnded || !open[0] ? out : out.slice(0, open[0].at);
  return { out: decided.map(drawn).join(""), length };
}

/** Characters that are never Markdown; an address may begin with h. @param {string} text @param {number} at */
function readPlain(text, at) {
  PLAIN.lastIndex = at;
  const [out] = PLAIN.exec(text) ?? [""];
  return out ? { out, end: at + out.length } : null;
}

/** @param {string | Run} piece */
const drawn = (piece) => (typeof piece === "string" ? piece : verbatim(piece.sign.repeat(piece.left)) + piece.opened);

/** @param {string} text @param {number} at @param {boolean} isEnded @param {boolean} isLink @returns {Span | typeof UNSURE | null} */
function readSpan(text, at, isEnded, isLink) {
  switch (text[at]) {
    case "\\": return readEscape(text, at, isEnded);
    case "`": return readCode(text, at, isEnded);
    case "<": return readAngle(text, at, isEnded, isLink);
    case "!": if (text[at + 1] !== "[") return at + 1 === text.length && !isEnded ? UNSURE : null; // fall through
    case "[": return isLink ? null : readLink(text, at, isEnded);
    case "h": return isLink ? null : readAddress(text, at, isEnded);
    default: return null;
  }
}

/** @param {string} text @param {number} at @param {boolean} isEnded */
function readEscape(text, at, isEnded) {
  const next = text[at + 1];
  if (next === undefined) return isEnded ? null : UNSURE;
  if (next === "\n") return { out: "\n", end: at + 2 };
  return /[!-/:-@[-`{-~]/.test(next) ? { out: verbatim(next), end: at + 2 } : null;
}

/** @param {string} text @param {number} at @param {boolean} isEnded */
function readCode(text, at, isEnded) {
  const [run] = /** @type {string[]} */ (/^`+/.exec(text.slice(at)));
  const start = at + run.length;
  const close = text.slice(start).search(new RegExp(`(?<!\`)${run}(?!\`)`));
  const end = start + close + run.length;
  if (!isEnded && (close < 0 || end === text.length)) return UNSURE;
  if (close < 0) return { out: verbatim(run), end: start };
  const code = text.slice(start, start + close).replace(/\n/g, " ");
  return { out: CODE + verbatim(/^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code) + CLOSE, end };
}

/** `<https://…>` and a line break. @param {string} text @param {number} at @param {boolean} isEnded @param {boolean} isLink */
function readAngle(text, at, isEnded, isLink) {
  const rest = text.slice(at, at + LONGEST_LINK);
  const line = /^<br ?\/?>/i.exec(rest);
  if (line) return { out: "<br>", end: at + line[0].length };
  const found = /^<([a-z]+:[^\s<>]+)>/i.exec(rest);
  if (found && !isLink && isHarmless(found[1])) return link(found[1], verbatim(found[1]), at + found[0].length);
  return !isEnded && /^<(?:br ?\/?|[a-z]*|[a-z]+:[^\s<>]*)$/i.test(text.slice(at)) ? UNSURE : null;
}

/** `[text](address)`; a picture is a link, too. @param {string} text @param {number} at @param {boolean} isEnded */
function readLink(text, at, isEnded) {
  const start = text.indexOf("[", at);
  const rest = text.slice(start, start + LONGEST_LINK);
  const isOpen = !isEnded && start + rest.length === text.length;
  const middle = closing(rest, 0, "[", "]");
  if (middle < 0 || middle + 1 === rest.length) return isOpen ? UNSURE : null;
  if (rest[middle + 1] !== "(") return null;
  const end = closing(rest, middle + 1, "(", ")");
  if (end < 0) return isOpen ? UNSURE : null;
  const [, address] = /^\s*<?([^\s<>]*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*$/.exec(rest.slice(middle + 2, end)) ?? [];
  if (!address || !isHarmless(address)) return null;
  const shown = readInline(rest.slice(1, middle), true, { isLink: true }).out;
  return link(address, shown || verbatim(address), start + end + 1);
}

/** The end of a bracket with those inside; -1 without one. @param {string} text @param {number} from @param {string} open @param {string} close */
function closing(text, from, open, close) {
  let depth = 0;
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === open) depth += 1;
    else if (text[at] === close && (depth -= 1) === 0) return at;
  }
  return -1;
}

/** An address that stands by itself; the end of a sentence is not part of it. @param {string} text @param {number} at @param {boolean} isEnded */
function readAddress(text, at, isEnded) {
  if (at && !BEFORE_ADDRESS.test(text[at - 1])) return null;
  const rest = text.slice(at);
  let [address] = /^https?:\/\/[^\s<>[\]|`"\\]+/.exec(rest) ?? [""];
  if (!isEnded && (address === rest || "https://".startsWith(rest) || "http://".startsWith(rest))) return UNSURE;
  for (let cut = ""; cut !== address; ) {
    cut = address;
    address = cut.replace(/[?!.,:;*_~'“”‘’«»…、。，；：！？]+$/u, "");
    if (address.endsWith(")") && address.split(")").length > address.split("(").length) address = address.slice(0, -1);
  }
  return isHarmless(address) ? link(address, verbatim(address), at + address.length) : null;
}

/** @param {string} address @param {string} shown @param {number} end @returns {Span} */
const link = (address, shown, end) => ({ out: LINK + verbatim(address) + SHOWN + shown + CLOSE, end });

/** @param {string | undefined} sign */
const isWord = (sign) => sign !== undefined && /[\p{L}\p{N}]/u.test(sign);
/** @param {string | undefined} sign */
const isSpace = (sign) => sign === undefined || /\s/.test(sign);

/**
 * A run of `*`, `_` or `~`: it closes what is open, and the rest of it may open something.
 * @param {string} text @param {number} from @param {boolean} isEnded
 * @param {(string | Run)[]} out @param {Run[]} open @returns {Span | typeof UNSURE | null}
 */
function readRun(text, from, isEnded, out, open) {
  const [found] = /^(?:\*+|_+|~+)/.exec(text.slice(from)) ?? [""];
  if (!found) return null;
  const end = from + found.length;
  if (end === text.length && !isEnded) return UNSURE;
  const [before, after] = [text[from - 1], text[end]];
  const [sign, size] = [found[0], found.length];
  // As in snake_case and 2*3; two stars may stand inside a word.
  const isInside = isWord(before) && isWord(after) && (sign === "_" || found === "*");
  const isMark = !isInside && (sign !== "~" || size === 2);
  const opens = isMark && !isSpace(after) && (sign !== "_" || !isWord(before));
  const closes = isMark && !isSpace(before) && (sign !== "_" || !isWord(after));
  /** @type {Run} */ const run = { sign, size, left: size, from, at: 0, isBoth: opens && closes, opened: "" };
  const closed = closes ? close(run, open) : "";
  if (run.left && opens) {
    out.push(closed);
    run.at = out.length;
    open.push(run);
    out.push(run);
    return { out: "", end };
  }
  return { out: closed + verbatim(sign.repeat(run.left)), end };
}

/** @param {Run} run @param {Run[]} open @returns {string} */
function close(run, open) {
  let out = "";
  while (run.left) {
    const index = open.findLastIndex((each) => each.sign === run.sign && fits(each, run));
    if (index < 0) break;
    const opener = open[index];
    const size = Math.min(2, run.left, opener.left);
    opener.left -= size;
    run.left -= size;
    opener.opened = (run.sign === "~" ? STRIKE : size === 2 ? STRONG : EMPHASIS) + opener.opened;
    out += CLOSE;
    open.length = opener.left ? index + 1 : index;
  }
  return out;
}

/** CommonMark's rule of three: `**` inside of `*…*` does not end it. @param {Run} opener @param {Run} closer */
function fits(opener, closer) {
  if (!opener.isBoth && !closer.isBoth) return true;
  return (opener.size + closer.size) % 3 !== 0 || (opener.size % 3 === 0 && closer.size % 3 === 0);
}
