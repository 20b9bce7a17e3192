package drone

// Type is the task type of a delivery.
const Type = "delivery"

// Confirmation is how the receiver proves that the package arrived.
type Confirmation string

// The confirmations, in the reference application's spelling.
const (
	ConfirmFingerPrint Confirmation = "FingerPrint"
	ConfirmPicture     Confirmation = "Picture"
	ConfirmVoice       Confirmation = "Voice"
	ConfirmNone        Confirmation = "None"
)

// Size is how large a package is.
type Size string

// The sizes, in the reference application's spelling.
const (
	SizeSmall  Size = "Small"
	SizeMedium Size = "Medium"
	SizeLarge  Size = "Large"
)

// Request is one delivery request: the input of a task. Its JSON names are the
// reference application's; a decoder takes the queue's spelling
// dropoffLocation too. Two requests are the same when they are equal.
type Request struct {
	DeliveryID           string       `json:"deliveryId"` // the task id
	OwnerID              string       `json:"ownerId"`
	PickupLocation       string       `json:"pickupLocation"`
	DropOffLocation      string       `json:"dropOffLocation"`
	PickupTime           string       `json:"pickupTime,omitempty"` // RFC 3339
	Deadline             string       `json:"deadline,omitempty"`   // RFC 3339, not before PickupTime
	Expedited            bool         `json:"expedited"`
	ConfirmationRequired Confirmation `json:"confirmationRequired"` // empty means None
	PackageInfo          PackageInfo  `json:"packageInfo"`
}

// PackageInfo describes what is carried.
type PackageInfo struct {
	PackageID string  `json:"packageId"`
	Size      Size    `json:"size"`
	Weight    float64 `json:"weight"` // kilograms
	Tag       string  `json:"tag,omitempty"`
}

// AccountStatus is what the account check answers.
type AccountStatus struct {
	OwnerID string `json:"ownerId"`
	Active  bool   `json:"active"`
}

// PackageReceipt is what creating the package answers.
type PackageReceipt struct {
	PackageID string `json:"packageId"`
	Size      Size   `json:"size"`
}

// Transport is what the third-party transportation check answers.
type Transport struct {
	ThirdParty bool `json:"thirdParty"` // another carrier must take a part of the way
}

// Assignment is what scheduling a drone answers.
type Assignment struct {
	DroneID string `json:"droneId"`
}

// Confirmed is what creating the delivery answers.
type Confirmed struct {
	DeliveryID string `json:"deliveryId"`
	DroneID    string `json:"droneId"`
	PackageID  string `json:"packageId"`
	Expedited  bool   `json:"expedited"`
}
