/** Pictures and files in a message: read for sending, and found for showing. */

/** @import { Block, Content } from "./client/types.js" */

/** The server takes 10 MB in one message, and base64 is a third longer. */
export const MOST_BYTES = 7_000_000;

/** @typedef {{name: string, kind: string, url: string, block: Block, size: number}} Attachment */

/** @param {File} file @returns {Promise<Attachment>} */
export async function attach(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  const kind = file.type || "application/octet-stream";
  const base64 = url.slice(url.indexOf(",") + 1);
  const block = kind.startsWith("image/")
    ? { type: "image", base64, mime_type: kind }
    : { type: "file", base64, mime_type: kind, filename: file.name };
  return { name: file.name, kind, url, block, size: file.size };
}

/** Give the user a file. @param {unknown} value JSON, or a blob. @param {string} name */
export function save(value, name) {
  const blob = value instanceof Blob ? value : new Blob([JSON.stringify(value, null, 2)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Put a text on the clipboard; the button says so for a moment. @param {string} text @param {HTMLElement} button */
export async function copy(text, button) {
  await navigator.clipboard.writeText(text);
  const name = (button.dataset.name ??= button.textContent ?? "");
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = name), 1500);
}

const PICTURE = /^data:image\/(png|jpeg|gif|webp|avif);/;

/**
 * The parts of a content besides its text. Only data: nothing is loaded from elsewhere.
 * @param {Content} content
 * @returns {{kind: "picture" | "file", url: string | null, name: string}[]}
 */
export function mediaOf(content) {
  if (typeof content === "string") return [];
  return content.flatMap((block) => {
    if (typeof block !== "object" || !block || ["text", "reasoning"].includes(block.type)) return [];
    const mime = block.mime_type ?? block.source?.media_type ?? "";
    const data = block.base64 ?? block.data ?? block.source?.data;
    const url = block.image_url?.url ?? (data && mime ? `data:${mime};base64,${data}` : null);
    const isPicture = typeof url === "string" && PICTURE.test(url);
    const name = block.filename ?? block.extras?.filename ?? block.metadata?.filename ?? block.type;
    const isData = typeof url === "string" && url.startsWith("data:");
    return [{ kind: isPicture ? "picture" : "file", url: isData ? url : null, name: `${name}` }];
  });
}
