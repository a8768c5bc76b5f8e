package agent

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/kvscheduler"
)

// keptTransactions is how many of the scheduler's records outlive the agent. One of a pod's ADD takes some 10 kB.
const keptTransactions = 200

// transactions keeps the end of the scheduler's log over a restart, for those who come to look after a crash.
type transactions struct {
	rider[*kvscheduler.Record]
}

func newTransactions(buffered chan<- struct{}) *transactions {
	return &transactions{rider[*kvscheduler.Record]{store: storeTransaction, buffered: buffered}}
}

func storeTransaction(tx *bbolt.Tx, r *kvscheduler.Record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("transaction %d: %w", r.Seq, err)
	}
	b := tx.Bucket([]byte(transactionsBucket))
	if err := b.Put(transactionKey(r.Seq), raw); err != nil {
		return err
	}
	// Numbers have no gaps, so one goes for each that comes.
	if r.Seq > keptTransactions {
		return b.Delete(transactionKey(r.Seq - keptTransactions))
	}
	return nil
}

func transactionKey(seq uint64) []byte { return fmt.Appendf(nil, "%020d", seq) }
