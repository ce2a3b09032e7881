package workflows

// ControlQueue is the task queue of the workflows that belong to no shard:
// renumbering and retention. Every node polls it, and any of them can run them.
const ControlQueue = "laneway-control"
