/** Styles of all elements: the two sets of colours, controls and text. */

import { css } from "./vendor/lit.js";

/** On the outermost element: the custom properties reach everything inside. */
export const tokens = css`
  :host {
    color-scheme: light dark;
    --ground: light-dark(#fcfcfb, #15171a);
    --raised: light-dark(#f4f4f1, #1b1e22);
    --field: light-dark(#ffffff, #20242a);
    --hover: light-dark(#e9e9e5, #272c32);
    --line: light-dark(#dddcd6, #31373e);
    --edge: light-dark(#8b8f94, #727a83);
    --text: light-dark(#1c1f23, #e9e9e7);
    --dim: light-dark(#565c63, #a6adb4);
    --bubble: light-dark(#e7ebf2, #2b323c);
    --accent: light-dark(#3157a6, #9dbaf7);
    --on-accent: light-dark(#ffffff, #0f1a2e);
    --accent-soft: light-dark(#eaf0fc, #1d2738);
    --good: light-dark(#1d6f42, #7fd3a0);
    --warn: light-dark(#805300, #e8b854);
    --warn-soft: light-dark(#fdf3dd, #2f2816);
    --bad: light-dark(#a9261d, #ff9f95);
    --bad-soft: light-dark(#fdecea, #3a1f1d);
    --quick: 120ms;
    color: var(--text);
    background: var(--ground);
    font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
    -webkit-font-smoothing: antialiased;
  }
  :host([theme="light"]) { color-scheme: light; }
  :host([theme="dark"]) { color-scheme: dark; }
  @media (prefers-reduced-motion: reduce) {
    :host { --quick: 0ms; }
  }
`;

export const controls = css`
  *, *::before, *::after { box-sizing: border-box; }
  [hidden] { display: none !important; }
  button, input, select, textarea { font: inherit; color: inherit; }
  button {
    border: 1px solid var(--line);
    border-radius: 6px;
    background: var(--field);
    padding: 6px 12px;
    font-size: 13px;
    line-height: 20px;
    cursor: pointer;
    transition: background var(--quick);
  }
  button:hover:not(:disabled) { background: var(--hover); }
  button:disabled { opacity: .55; cursor: default; }
  button.plain { border-color: transparent; background: none; }
  button.plain:hover:not(:disabled) { background: var(--hover); }
  button.icon { padding: 6px; line-height: 0; color: var(--dim); }
  button.main { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
  button.main:hover:not(:disabled) { background: var(--accent); filter: brightness(1.08); }
  button.bad { color: var(--bad); }
  button.link {
    border: 0; padding: 0; background: none; color: var(--accent); text-decoration: underline;
    text-underline-offset: 2px; text-decoration-thickness: 1px; line-height: inherit;
    white-space: nowrap;
  }
  button.link:hover:not(:disabled) { background: none; text-decoration-thickness: 2px; }
  :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
  input:not([type="checkbox"], [type="radio"]), select, textarea {
    border: 1px solid var(--edge);
    border-radius: 6px;
    background: var(--field);
    padding: 6px 10px;
    font-size: 15px;
    line-height: 22px;
    max-width: 100%;
  }
  select { appearance: auto; }
  input { text-overflow: ellipsis; }
  ::placeholder { color: var(--dim); opacity: 1; }
  input[type="checkbox"], input[type="radio"] { accent-color: var(--accent); width: 16px; height: 16px; margin: 0; }
  a { color: var(--accent); text-underline-offset: 2px; }
  dialog::backdrop { background: rgb(0 0 0 / .35); }
  h1, h2, h3 { font-size: 15px; line-height: 24px; margin: 0; font-weight: 600; }
  p { margin: 0 0 8px; }
  svg { display: block; }
  .dim { color: var(--dim); }
  .small { font-size: 13px; line-height: 20px; }
  .tiny { font-size: 12px; line-height: 16px; }
  .bad { color: var(--bad); }
  .notice { border-radius: 6px; padding: 8px 12px; margin: 12px 0; background: var(--accent-soft); font-size: 13px; line-height: 20px; white-space: pre-line; }
  .notice.bad { background: var(--bad-soft); }
  .face {
    flex: none; width: 28px; height: 28px; border-radius: 50%; display: grid; place-items: center; font-size: 13px;
    font-weight: 600; background: var(--accent-soft); color: var(--accent);
  }
  .row { display: flex; align-items: center; gap: 8px; }
  .grow { flex: 1; min-width: 0; }
  .cut { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
  .unseen {
    position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
    white-space: nowrap;
  }
  code, pre, .mono { font-family: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, monospace; }
`;

/** For pages beside the conversation: preferences, memories, reminders. */
export const sheet = css`
  :host { display: block; overflow-y: auto; min-height: 0; }
  .page { max-width: 640px; margin: 0 auto; padding: 24px 20px 64px; }
  h1 { font-size: 24px; line-height: 32px; margin-bottom: 4px; }
  h2 { margin: 28px 0 8px; }
  .lead { color: var(--dim); margin-bottom: 16px; }
  ul.list { list-style: none; margin: 16px 0; padding: 0; border-top: 1px solid var(--line); }
  ul.list > li { border-bottom: 1px solid var(--line); padding: 12px 0; }
  .empty {
    border: 1px dashed var(--edge); border-radius: 10px; padding: 24px; margin: 16px 0;
    color: var(--dim); text-align: center; text-wrap: balance;
  }
  .empty p { color: var(--text); font-weight: 600; margin: 0 0 4px; }
  input.wide { width: 100%; }
  form.add { display: flex; gap: 8px; flex-wrap: wrap; margin: 16px 0; }
  form.add > .grow { flex: 1 1 200px; }
  .setting { display: flex; gap: 16px; align-items: center; padding: 12px 0; border-bottom: 1px solid var(--line); flex-wrap: wrap; }
  .setting > .grow { flex: 1 1 240px; }
  .setting strong { font-weight: 600; display: block; }
  .setting .small { display: block; }
  .setting .small button { font-size: inherit; }
  .setting select { width: 240px; }
`;
