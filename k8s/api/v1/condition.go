package v1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of conditions.
const (
	// ConditionReady is true where the object is in use as it stands; else its reason and message say why not.
	ConditionReady = "Ready"
	// ConditionAddresses is true if all pods of the node use addresses of the node's blocks. Otherwise its message names the pods that do not.
	ConditionAddresses = "Addresses"
	// ConditionConflict is true where two objects claim the same; its message names the other one.
	ConditionConflict = "Conflict"
)

// Reasons of conditions.
const (
	ReasonInUse    = "InUse"
	ReasonInvalid  = "Invalid"
	ReasonOverlap  = "Overlap"
	ReasonRefused  = "Refused" // by a node, whose name the message has
	ReasonNoBlocks = "NoBlocks"
	ReasonPending  = "Pending" // nodes have not said yet
	ReasonDisabled = "Disabled"
	ReasonDeleting = "Deleting" // the object is being deleted

	ReasonNoConflict = "NoConflict" // of a condition Conflict that is false
)

// Conditions are the observations of an object, one of each type.
//
// +listType=map
// +listMapKey=type
// +kubebuilder:validation:MaxItems=8
type Conditions []metav1.Condition

// Set sets conditions that were observed of a generation of the object. Unchanged ones keep their times.
func (c *Conditions) Set(generation int64, conditions ...metav1.Condition) {
	for _, condition := range conditions {
		condition.ObservedGeneration = generation
		meta.SetStatusCondition((*[]metav1.Condition)(c), condition)
	}
}
