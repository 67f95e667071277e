/** CopilotKit's runtime with an agent of Segue, and the page of chat.tsx, at one address. */
import { createServer } from "node:http";
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { build } from "esbuild";

const { SEGUE_URL = "http://127.0.0.1:8000", SEGUE_AGENT = "companion", PORT = "9000" } = process.env;
const agent = new HttpAgent({ url: `${SEGUE_URL}/ag-ui/${SEGUE_AGENT}/run` });
const runtime = new CopilotRuntime({ agents: { default: agent } });
const answer = createCopilotNodeListener({ runtime, basePath: "/copilotkit" });

const { outputFiles } = await build({
  entryPoints: ["chat.tsx"],
  bundle: true,
  jsx: "automatic",
  outdir: "/",
  write: false,
  loader: { ".woff2": "file", ".woff": "file", ".ttf": "file" },
  define: { LIVE: JSON.stringify(`${SEGUE_URL}/ag-ui/${SEGUE_AGENT}/connect`) },
});
const files = new Map(outputFiles.map(({ path, contents }) => [path, contents]));
files.set("/", `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>A chat that speaks first</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="chat.css">
<style>html, body, #root { height: 100%; margin: 0; }</style>
</head>
<body><main id="root"></main><script src="chat.js"></script></body>
</html>`);
const types = { js: "text/javascript", css: "text/css", "/": "text/html" };

createServer((request, response) => {
  const path = request.url.replace(/\?.*/, "");
  if (!files.has(path)) return answer(request, response);
  response.setHeader("Content-Type", types[path.split(".").at(-1)] ?? "font/woff2");
  response.end(files.get(path));
}).listen(Number(PORT), "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/`));
