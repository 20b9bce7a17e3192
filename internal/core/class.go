package core

import "fmt"

// Class is the priority of a submission: which share its task has of what is scarce.
type Class uint8

// The classes. A submission without one is normal.
const (
	ClassHigh Class = iota
	ClassNormal
	ClassLow
	Classes int = iota // how many there are
)

// PriorityLabel is the key of the label that carries the class. CheckLabel takes the names of classes for its value alone.
const PriorityLabel = "duly-priority"

var classNames = [Classes]string{"high", "normal", "low"}

// String is the name of the class.
func (c Class) String() string { return classNames[c] }

// ParseClass reads the name of a class. Errors name what is allowed.
func ParseClass(name string) (Class, error) {
	for i, is := range classNames {
		if is == name {
			return Class(i), nil
		}
	}
	return ClassNormal, fmt.Errorf("priority %s, want high, normal or low", QuoteShort(name))
}

// ClassOf is the class that labels carry; normal where they carry none.
func ClassOf(labels []Label) Class {
	for i := range labels {
		if labels[i].Key == PriorityLabel {
			c, _ := ParseClass(labels[i].Value) // one that is not known can only come from a newer version: it is normal
			return c
		}
	}
	return ClassNormal
}
