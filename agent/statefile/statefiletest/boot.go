// Package statefiletest changes state files for tests.
package statefiletest

import (
	"errors"

	"go.etcd.io/bbolt"
)

// ChangeBoot makes the state file at path one of an earlier boot.
func ChangeBoot(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		if meta == nil || meta.Get([]byte("boot-id")) == nil {
			return errors.New("the state file has no boot id")
		}
		return meta.Put([]byte("boot-id"), []byte("00000000-0000-0000-0000-000000000000"))
	})
	return errors.Join(err, db.Close())
}
