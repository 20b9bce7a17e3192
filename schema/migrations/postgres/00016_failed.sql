-- +goose NO TRANSACTION
-- +goose Up
-- tasks_by_state is in its place: a list of a few tasks in error walks over no undone ones.
DROP INDEX IF EXISTS tasks_failed;
