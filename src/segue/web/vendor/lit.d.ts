export { LitElement, html, svg, css, nothing } from "lit";
export type { TemplateResult, PropertyValues, CSSResultGroup } from "lit";
export { repeat } from "lit/directives/repeat.js";
export { ref, createRef } from "lit/directives/ref.js";
export { classMap } from "lit/directives/class-map.js";
export { live } from "lit/directives/live.js";
