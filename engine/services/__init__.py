"""Services that clients ask for: answers, the loaded model, quantising, training of heads, experiments, GPU packs."""
