package v1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Types of conditions.
const (
	// ConditionReady is true if the current generation of the object is in use. Otherwise its message has the reason.
	ConditionReady = "Ready"
	// ConditionAddresses is true if all pods of the node use addresses of the node's blocks. Otherwise its message
	// names the pods that do not.
	ConditionAddresses = "Addresses"
	// ConditionConflict is true if another object claims the same resource; its message names that object.
	ConditionConflict = "Conflict"
)

// Reasons of conditions.
const (
	ReasonInUse    = "InUse"
	ReasonInvalid  = "Invalid"
	ReasonOverlap  = "Overlap"
	ReasonRefused  = "Refused" // by the node that the message names
	ReasonNoBlocks = "NoBlocks"
	ReasonPending  = "Pending" // nodes have not reported yet
	ReasonDisabled = "Disabled"
	ReasonDeleting = "Deleting" // the object is being deleted

	ReasonNoConflict = "NoConflict" // of a condition Conflict that is false
)

// Conditions are the conditions of an object, at most one of each type.
//
// +listType=map
// +listMapKey=type
// +kubebuilder:validation:MaxItems=8
type Conditions []metav1.Condition

// UnmarshalJSON skips unreadable conditions. The API server accepts times that Go's parser refuses, for example with a
// lower-case t. A node that writes such a time into its own status must not hide the objects of all other nodes, which
// are in the same list.
func (c *Conditions) UnmarshalJSON(raw []byte) error {
	*c = nil
	var each []json.RawMessage
	_ = kjson.UnmarshalCaseSensitivePreserveInts(raw, &each) // what is no list has no conditions
	for _, one := range each {
		var condition metav1.Condition
		if kjson.UnmarshalCaseSensitivePreserveInts(one, &condition) == nil {
			*c = append(*c, condition)
		}
	}
	return nil
}

// Set sets conditions observed at a generation of the object. Unchanged conditions keep their times.
func (c *Conditions) Set(generation int64, conditions ...metav1.Condition) {
	for _, condition := range conditions {
		condition.ObservedGeneration = generation
		meta.SetStatusCondition((*[]metav1.Condition)(c), condition)
	}
}
