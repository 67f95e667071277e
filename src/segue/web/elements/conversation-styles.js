/** Styles of a conversation. */

import { css } from "../vendor/lit.js";

export const conversationStyles = css`
  :host { display: flex; flex-direction: column; min-height: 0; position: relative; }
  .log { flex: 1; display: flex; overflow-y: auto; overscroll-behavior: contain; padding: 16px 20px 8px; overflow-anchor: none; }
  .column { width: min(760px, 100%); margin: auto auto 0; }
  .column > * + * { margin-top: 12px; }
  .column > :is(.gap, .gap + *) { margin-top: 20px; }
  .column:has(> .empty) { margin: auto; }
  segue-message { contain: layout style; }
  .gap { display: flex; align-items: center; gap: 12px; color: var(--dim); font-size: 12px; line-height: 16px; }
  .gap::before, .gap::after { content: ""; flex: 1; border-top: 1px dotted var(--edge); opacity: .6; }
  .foot { padding: 0 20px 16px; }
  .foot > * { max-width: 760px; margin-inline: auto; }
  .status { min-height: 24px; font-size: 12px; line-height: 24px; color: var(--dim); display: flex; gap: 8px; align-items: center; }
  .status svg { width: 14px; height: 14px; }
  .status button { font-size: 12px; }
  .status.warn { color: var(--warn); }
  .dots { display: inline-flex; gap: 3px; }
  .dots i { width: 5px; height: 5px; border-radius: 50%; background: currentColor; animation: beat 1.2s infinite; }
  .dots i:nth-child(2) { animation-delay: .15s; } .dots i:nth-child(3) { animation-delay: .3s; }
  @keyframes beat { 0%, 60%, 100% { opacity: .3; } 30% { opacity: 1; } }
  @media (prefers-reduced-motion: reduce) { .dots i { animation: none; } }
  .pill { position: absolute; bottom: 96px; left: 50%; transform: translateX(-50%); border-radius: 16px; display: flex; gap: 6px; align-items: center; box-shadow: 0 2px 8px rgb(0 0 0 / .18); }
  .empty { text-align: center; color: var(--dim); margin: auto; max-width: 36ch; }
  .empty h2 { color: var(--text); font-size: 18px; line-height: 28px; }
  .unsent { margin-left: auto; max-width: min(85%, 60ch); width: fit-content; }
  .unsent .text { width: fit-content; margin-left: auto; background: var(--bubble); border-radius: 10px; padding: 8px 12px; white-space: pre-wrap; overflow-wrap: anywhere; }
  .unsent.going .text { opacity: .75; }
  .unsent .small { display: flex; gap: 8px; justify-content: flex-end; color: var(--bad); font-size: 12px; }
  .found { outline: 2px solid var(--accent); outline-offset: 8px; border-radius: 4px; }
  .top { text-align: center; font-size: 12px; color: var(--dim); }
  @media (max-width: 640px) { .log { padding: 12px 16px 8px 20px; } .foot { padding: 0 8px 8px; } }
`;
