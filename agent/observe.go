package agent

import "github.com/weftnet/weft/podmanager"

// observe hands what happens to attachments to all who want to know. None of them may wait, and they are appended before
// Run.
func (a *Agent) observe(o podmanager.Outcome) {
	for _, tell := range a.observers {
		tell(o)
	}
}
