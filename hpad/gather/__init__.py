"""From metric specs to samples: which source answers, in which batch, how long it may take, and what if it fails."""
