/** Why an agent wrote first, in one sentence for the person it wrote to. */

import { span } from "./words.js";

/** @import { Message, Reason } from "./client/types.js" */

/** @type {Record<string, (name: string, quiet: string) => string>} */
const SENTENCES = {
  question_unanswered: (name, quiet) =>
    `You had not answered for ${quiet}, and ${name} had asked something.`,
  waiting_for_decision: (name, quiet) =>
    `You had not answered for ${quiet}, and there was something for you to decide.`,
  task_incomplete: (name, quiet) => `Something was left unfinished, and it had been quiet for ${quiet}.`,
  check_in: (name, quiet) => `It had been quiet for ${quiet}, and ${name} wanted to know how it went.`,
  reminder: (name) => `You had asked ${name} to remind you.`,
  event: (name) => `Something happened that ${name} was asked to tell you about.`,
};

/**
 * @param {Message} message @param {Reason[]} reasons  Of its thread, oldest first.
 * @param {string} name  The agent's.
 */
export function explain(message, reasons, name) {
  const written = new Date(message.created_at).getTime();
  const earlier = reasons.filter((reason) => new Date(reason.at).getTime() <= written);
  // The last decision that allowed it.
  const allowed = earlier.findLast((reason) => reason.outcome === "allow" && reason.details.trigger);
  if (!allowed) return `${name} had a reason to write that is no longer on record.`;
  const since = allowed.details.talked_at ?? allowed.details.due_at;
  const quiet = span(new Date(allowed.at).getTime() - new Date(since).getTime());
  const sentence = SENTENCES[allowed.details.trigger];
  return sentence ? sentence(name, quiet) : `${name} was asked to write to you (“${allowed.details.trigger}”).`;
}
