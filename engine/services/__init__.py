"""What can be asked for: answers, the loaded model, quantising, training of heads, experiments, GPU packs."""
