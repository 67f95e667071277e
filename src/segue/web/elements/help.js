/** The keys, and how to chat in a terminal. */

import { html } from "../vendor/lit.js";

const KEYS = [
  ["Enter", "Send"],
  ["Shift Enter", "New line"],
  ["Esc", "Stop the answer"],
  ["Ctrl K", "Search"],
  ["Ctrl J", "Next unread conversation"],
  ["?", "This help"],
];

export const helpDialog = html`<dialog class="help" aria-label="Keys">
  <form method="dialog">
    <h2>Keys</h2>
    <dl>${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <p class="small dim">In a terminal: <code>segue chat --url ${location.origin}</code></p>
    <button class="main">Close</button>
  </form>
</dialog>`;
