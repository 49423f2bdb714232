// Actions on requests, workers, services and jobs. Destructive ones are confirmed. Each is a call of a built-in service, so the
// same permissions apply as on the command line.

import { h, put } from "./dom.js";
import { call, text } from "./feed.js";

/** Asks for confirmation, runs `act`, then shows the result. */
function confirmed(title, text, button, act) {
  const dialog = document.getElementById("dialog");
  const cancelButton = h("button", { type: "button", onclick: () => dialog.close() }, "Keep");
  const go = h("button", { type: "button", class: "danger", onclick: async () => {
    go.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (error) {
      put(note, `Failed: ${error.message}`);
      go.disabled = false;
    }
  } }, button);
  const note = h("p", { class: "error", role: "alert" });
  put(dialog, h("h2", { id: "dialog-title" }, title), h("p", null, text), note, h("div", { class: "actions" }, cancelButton, go));
  dialog.showModal();
  cancelButton.focus();
}

/** Calls a built-in service with a JSON object. Its answer is JSON, too; {"error", "text"} is a failure. */
async function ask(service, body) {
  const reply = await call(service, [JSON.stringify(body)], 10);
  const answer = reply.frames.length ? JSON.parse(text([reply.frames[0]])) : {};
  if (answer.error) throw new Error(answer.text || answer.error);
  return answer;
}

/** Runs at once, and shows an error if it failed. */
async function atOnce(title, act) {
  try {
    await act();
  } catch (error) {
    const dialog = document.getElementById("dialog");
    put(dialog, h("h2", { id: "dialog-title" }, title), h("p", { class: "error" }, error.message), h("form", { method: "dialog" }, h("button", null, "Close")));
    dialog.showModal();
  }
}

export const cancelRequest = (request) => confirmed("Cancel the request", `Cancel ${request}? Its client gets the failure "cancelled".`, "Cancel it", () => ask("polydomo.withdraw", { request }));
export const cancelJob = (job) => confirmed("Cancel the job", `Cancel ${job}? It does not run again.`, "Cancel it", () => ask("polydomo.cancel", { job }));
export const drain = (worker) => confirmed("Drain", `Drain ${worker}? It finishes its requests and gets no new ones.`, "Drain", () => ask("polydomo.drain", { worker }));
export const pause = (service) => confirmed("Pause", `Pause ${service}? Its requests queue until it is resumed.`, "Pause", () => ask("polydomo.pause", { service }));
export const resume = (service) => atOnce("Resume", () => ask("polydomo.resume", { service }));
export const resumeWorker = (worker) => atOnce("Resume", () => ask("polydomo.resume", { worker }));
export const retryDead = (job) => atOnce("Retry", () => ask("polydomo.retry", { job }));
export const dropDead = (job) => confirmed("Drop", `Drop the dead letter ${job}? It cannot be retried afterwards.`, "Drop it", () => ask("polydomo.drop", { job }));
export const runSchedule = (name) => atOnce("Run now", () => ask("polydomo.fire", { name }));
export const removeSchedule = (name) => confirmed("Remove", `Remove the schedule ${name}?`, "Remove", () => ask("polydomo.unschedule", { name }));
