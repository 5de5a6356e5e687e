"""Chapter 8, tricks of the trade: initialisation, decay, early stopping, dropout, norms, labels, distillation."""
