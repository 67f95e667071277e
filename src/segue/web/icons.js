/** Our own pictures, 18 pixels, drawn with one line. */

import { html, svg } from "./vendor/lit.js";

const PATHS = {
  trash: "M3.5 5h11M7 5V3h4v2M5 5l.7 10h6.6L13 5M7.6 8v4M10.4 8v4",
  plus: "M9 3v12M3 9h12",
  search: "M8 13A5 5 0 1 0 8 3a5 5 0 0 0 0 10ZM12 12l3.5 3.5",
  send: "M9 15V3.5M4 8l5-5 5 5",
  stop: "M5 5h8v8H5Z",
  back: "M11 3 5 9l6 6",
  close: "M4 4l10 10M14 4 4 14",
  check: "M3.5 9.5 7 13l7.5-8",
  pause: "M6 4v10M12 4v10",
  clip: "M13.5 8.5 8.6 13.4a3 3 0 0 1-4.2-4.2l5.6-5.6a2 2 0 0 1 2.8 2.8l-5.6 5.6a1 1 0 0 1-1.4-1.4l4.9-4.9",
  follow: "M7 4 3 8l4 4M3 8h7a4 4 0 0 1 4 4v2",
  bell: "M4.5 12.5h9c-1-1-1.2-2-1.2-4.5a3.3 3.3 0 0 0-6.6 0c0 2.5-.2 3.5-1.2 4.5ZM7.5 15h3",
  mute: "M4.5 12.5h9c-1-1-1.2-2-1.2-4.5a3.3 3.3 0 0 0-6.6 0c0 2.5-.2 3.5-1.2 4.5ZM7.5 15h3M3 3l12 12",
  gauge: "M3 13a6 6 0 1 1 12 0M9 13l3-4",
  down: "M9 3v11M4 10l5 5 5-5",
  file: "M5 2.5h5l3 3v10H5ZM10 2.5v3h3",
  book: "M4 3h7a3 3 0 0 1 3 3v9H7a3 3 0 0 1-3-3Z",
  clock: "M9 15.5A6.5 6.5 0 1 0 9 2.5a6.5 6.5 0 0 0 0 13ZM9 5.5V9l2.5 2",
  sliders: "M3 5h12M3 9h12M3 13h12M6 3.5v3M12 7.5v3M7 11.5v3",
  chart: "M3 15V3M3 15h12M6 12V9M9.5 12V6M13 12V8",
  flask: "M7 3h4M7.7 3v4.2L3.8 14a1 1 0 0 0 .9 1.5h8.6a1 1 0 0 0 .9-1.5l-3.9-6.8V3M5.6 11h6.8",
};

/** @param {keyof typeof PATHS} name */
export const icon = (name) => html`<svg
  viewBox="0 0 18 18" width="18" height="18" fill="none" stroke="currentColor" stroke-width="1.5"
  stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"
>${svg`<path d=${PATHS[name]} />`}</svg>`;
