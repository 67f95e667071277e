// Builds the page that `npx create-agent-chat-app` makes, into `dist`. Server and agent are named in
// its address, so one build serves every test.
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "vite";

cpSync("node_modules/create-agent-chat-app/templates/vite", "app", { recursive: true });
// A style sheet that the template names and does not have.
const page = readFileSync("app/index.html", "utf-8");
writeFileSync("app/index.html", page.replace(/.*\/src\/styles\.css.*\n/, ""));
await build({ root: "app", configFile: "app/vite.config.ts", logLevel: "error", build: { outDir: "../dist" } });
for (const name of ["app", "node_modules"]) rmSync(name, { recursive: true }); // 280 MB
