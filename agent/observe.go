package agent

import "github.com/weftnet/weft/podmanager"

// countChange counts pods that came or went.
func (a *Agent) countChange(o podmanager.Outcome) {
	if o.Happening != podmanager.Failed {
		a.podChanges.Add(1)
	}
}

// observe hands what happens to attachments to all who want to know. None of them may wait, and they are appended before
// Run.
func (a *Agent) observe(o podmanager.Outcome) {
	for _, tell := range a.observers {
		tell(o)
	}
}
