/** Styles of an agent's Markdown. */

import { css } from "../vendor/lit.js";

export const prose = css`
  .prose { overflow-wrap: anywhere; }
  .prose > :first-child { margin-top: 0; }
  .prose > :last-child { margin-bottom: 0; }
  .prose p, .prose ul, .prose ol, .prose blockquote, .prose .box { margin: 0 0 12px; }
  .prose :is(h1, h2, h3, h4, h5, h6) { font-size: 15px; line-height: 24px; font-weight: 600; margin: 16px 0 4px; }
  .prose h1 { font-size: 18px; }
  .prose ul, .prose ol { padding-left: 24px; }
  .prose li { margin: 2px 0; }
  .prose li > p { margin: 0; }
  .prose blockquote { border-left: 3px solid var(--line); padding-left: 12px; color: var(--dim); }
  .prose code { font-size: 13px; background: var(--raised); border-radius: 4px; padding: 1px 4px; }
  .prose .box { position: relative; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
  .prose .scroll { overflow-x: auto; }
  .prose pre { margin: 0; padding: 12px; background: var(--raised); width: fit-content; min-width: 100%; }
  .prose pre code { background: none; padding: 0; white-space: pre; overflow-wrap: normal; line-height: 20px; display: block; }
  .prose .copy { position: absolute; top: 6px; right: 6px; padding: 2px 8px; font-size: 12px; opacity: 0; }
  .prose .box:hover .copy, .prose .copy:focus-visible { opacity: 1; }
  @media (hover: none) { .prose .copy { opacity: 1; } }
  .prose table { border-collapse: collapse; font-size: 13px; line-height: 20px; min-width: 100%; }
  .prose :is(th, td) { text-align: left; vertical-align: top; padding: 6px 12px; border-bottom: 1px solid var(--line); overflow-wrap: normal; }
  .prose tr:last-child td { border-bottom: 0; }
  .prose th { font-weight: 600; background: var(--raised); }
  .prose hr { border: 0; border-top: 1px solid var(--line); margin: 16px 0; }
`;
