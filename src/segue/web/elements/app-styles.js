/** Styles of the page's frame. */

import { css } from "../vendor/lit.js";

export const appStyles = css`
  :host { display: block; }
  .frame { height: 100%; display: grid; grid-template-columns: 280px minmax(0, 1fr); }
  .frame.inspecting { grid-template-columns: 280px minmax(0, 1fr) minmax(360px, 36vw); }
  aside { background: var(--raised); border-right: 1px solid var(--line); display: flex; flex-direction: column; min-height: 0; }
  aside segue-threads { flex: 1; }
  .places { border-top: 1px solid var(--line); padding: 8px; display: grid; grid-template-columns: 1fr 1fr; gap: 2px; }
  .places a { display: inline-flex; gap: 6px; align-items: center; padding: 6px 8px; border-radius: 6px; font-size: 13px; line-height: 20px; text-decoration: none; color: var(--dim); }
  .places a:hover, .places a[aria-current] { background: var(--hover); color: var(--text); }
  .middle { display: flex; flex-direction: column; min-height: 0; min-width: 0; }
  .middle > :is(segue-conversation, segue-memories, segue-preferences, segue-reminders, segue-outcomes, segue-simulator) { flex: 1; }
  header { display: flex; gap: 8px; align-items: center; border-bottom: 1px solid var(--line); padding: 8px 12px 8px 20px; min-height: 53px; }
  header h1 { flex: 1; min-width: 0; }
  header h1 .dim { font-weight: 400; }
  .back { display: none; }
  .offer { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; padding: 8px 20px; background: var(--accent-soft); font-size: 13px; }
  dialog.help { border: 1px solid var(--line); border-radius: 10px; background: var(--ground); color: var(--text); padding: 20px 24px; }
  dialog.help dl { display: grid; grid-template-columns: auto 1fr; gap: 6px 16px; }
  dialog.help dd { margin: 0; }
  kbd { font: 12px ui-monospace, monospace; border: 1px solid var(--line); border-radius: 4px; padding: 1px 5px; background: var(--raised); }
  .welcome { margin: auto; text-align: center; width: min(68ch, 100%); padding: 24px; box-sizing: border-box; }
  .welcome segue-composer { text-align: left; margin-top: 16px; }
  .recent { display: grid; gap: 8px; margin-top: 16px; }
  .recent a { border: 1px solid var(--line); border-radius: 10px; padding: 8px 12px; text-decoration: none; color: inherit; text-align: left; display: flex; gap: 12px; align-items: center; }
  .recent a:hover { background: var(--hover); }
  .welcome h1 { font-size: 24px; line-height: 32px; margin-bottom: 8px; }
  .inspector { border-left: 1px solid var(--line); min-height: 0; display: flex; flex-direction: column; }
  .inspector segue-inspector { flex: 1; }
  @media (max-width: 1000px) { .frame.inspecting { grid-template-columns: 240px minmax(0, 1fr) 340px; } .frame { grid-template-columns: 240px minmax(0, 1fr); } }
  @media (max-width: 800px) {
    .frame, .frame.inspecting { grid-template-columns: minmax(0, 1fr); }
    .inspector, .inspect { display: none !important; }
    .frame.reading aside, .frame:not(.reading) .middle { display: none; }
    .frame.first { display: flex; flex-direction: column; }
    .frame.first aside { display: contents; }
    .frame.first segue-threads { display: none; }
    .frame.first .middle { display: flex; flex: 1; }
    .frame.first .places { order: 1; background: var(--raised); }
    .back { display: block; }
    header { padding-left: 8px; }
  }
`;
