// Actions on requests, workers, services and jobs. Destructive ones are confirmed. Each is a call of a built-in service, so the
// same permissions apply as on the command line.

import { h, put } from "./dom.js";
import { call } from "./feed.js";

/** Asks before `act` runs, then shows how it ended. */
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

const ask = (service, body) => call(service, [typeof body === "string" ? body : JSON.stringify(body)], 10);

export const cancel = (id) => confirmed("Cancel", `Cancel ${id}? Its client gets the failure "cancelled".`, "Cancel it", () => ask("polydomo.cancel", id));
export const drain = (worker) => confirmed("Drain", `Drain ${worker}? It finishes what it holds and gets nothing more.`, "Drain", () => ask("polydomo.drain", worker));
export const pause = (service) => confirmed("Pause", `Pause ${service}? Its requests queue until it is resumed.`, "Pause", () => ask("polydomo.pause", service));
export const resume = (service) => ask("polydomo.resume", service);
export const retryDead = (job) => ask("polydomo.dead.retry", { job });
export const dropDead = (job) => confirmed("Drop", `Drop the dead letter ${job}? It cannot be retried afterwards.`, "Drop it", () => ask("polydomo.dead.drop", { job }));
export const runSchedule = (name) => ask("polydomo.schedule.run", name);
export const removeSchedule = (name) => confirmed("Remove", `Remove the schedule ${name}?`, "Remove", () => ask("polydomo.schedule.remove", name));
