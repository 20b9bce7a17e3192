package api

import "example.test/tree/internal/operate"

func Do(trail operate.Trail) {
	trail.Append(operate.AuditEntry{Action: operate.ActionOne})
	trail.Append(operate.AuditEntry{Action: operate.ActionTwo})
}

func Refuse(trail operate.Trail) { trail.Append(operate.AuditEntry{}) }

func other(list []string) []string { return append(list, "") }
