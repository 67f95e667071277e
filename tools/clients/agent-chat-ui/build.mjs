// Builds the page that `npx create-agent-chat-app` makes, into `dist`. Server and agent are named in
// its address, so one build serves every test.
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { compile } from "@tailwindcss/node";
import { Scanner } from "@tailwindcss/oxide";
import { build } from "esbuild";

cpSync("node_modules/create-agent-chat-app/templates/vite", "app", { recursive: true });
const base = `${process.cwd()}/app/src`;
const styles = await compile(readFileSync("app/src/index.css", "utf-8"), { base, onDependency() {} });
const used = new Scanner({ sources: [{ base, pattern: "**/*", negated: false }] }).scan();
writeFileSync("app/src/index.css", styles.build(used));
// The template is set up for Vite, which would take half a minute of CPU, and 50 packages more.
await build({
  entryPoints: ["app/src/main.tsx"],
  bundle: true,
  format: "esm",
  jsx: "automatic",
  outdir: "dist",
  alias: { "@": base },
  define: { "import.meta.env": "{}", "process.env.NODE_ENV": '"production"' },
  loader: { ".woff2": "file", ".woff": "file", ".ttf": "file", ".svg": "file" },
  logLevel: "error",
});
const page = readFileSync("app/index.html", "utf-8");
writeFileSync("dist/index.html", page.replace("/src/styles.css", "main.css").replace("/src/main.tsx", "main.js"));
cpSync("app/public", "dist", { recursive: true });
for (const name of ["app", "node_modules"]) rmSync(name, { recursive: true }); // 280 MB
