// Renews src/segue/web/vendor from the locked packages: one file per library, its licence, and a
// list of hashes that a test compares. Run it by `make vendor`.
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = fileURLToPath(new URL("../../src/segue/web/vendor/", import.meta.url));
const packages = fileURLToPath(new URL("node_modules/", import.meta.url));

// What the page imports, and no more.
const LIT = `
export { LitElement, html, svg, css, nothing } from "lit";
export { repeat } from "lit/directives/repeat.js";
export { ref, createRef } from "lit/directives/ref.js";
export { classMap } from "lit/directives/class-map.js";
export { live } from "lit/directives/live.js";
`;
const MARKDOWN = `export * from "streaming-markdown";`;

async function bundle(name, source) {
  await build({
    stdin: { contents: source, resolveDir: packages },
    outfile: `${folder}${name}`,
    bundle: true,
    format: "esm",
    minify: true,
    target: "es2022",
    legalComments: "none", // the licences lie beside it
  });
}

await mkdir(folder, { recursive: true });
for (const name of await readdir(folder)) {
  if (!name.endsWith(".d.ts")) await rm(`${folder}${name}`);
}
await bundle("lit.js", LIT);
await bundle("streaming-markdown.js", MARKDOWN);
const licences = { lit: "lit/LICENSE", "streaming-markdown": "streaming-markdown/license" };
for (const [name, path] of Object.entries(licences)) {
  const { version } = JSON.parse(await readFile(`${packages}${name}/package.json`, "utf8"));
  const text = await readFile(`${packages}${path}`, "utf8");
  await writeFile(`${folder}${name}.LICENSE`, `${name} ${version}\n\n${text}`);
}
const files = (await readdir(folder)).filter((name) => !/\.d\.ts$|^SHA256SUMS$/.test(name)).sort();
const sums = await Promise.all(
  files.map(async (name) => {
    const digest = createHash("sha256").update(await readFile(`${folder}${name}`)).digest("hex");
    return `${digest}  ${name}\n`;
  }),
);
await writeFile(`${folder}SHA256SUMS`, sums.join(""));
