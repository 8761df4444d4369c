-- Fencing tokens for PostgreSQL (11 or later): the database remembers the largest token of each resource, and refuses a
-- transaction with a smaller one. tenure-tokens(7) has the rules, README the use.
--
--   psql -v ON_ERROR_STOP=1 -f tokens.sql DATABASE
BEGIN;

CREATE SCHEMA tenure;

CREATE TABLE tenure.tokens (
	resource text PRIMARY KEY,
	token bigint NOT NULL CHECK (token > 0),
	since timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Call it first in each transaction, before anything is read. It raises TN001 if a larger token has been seen. Otherwise a
-- transaction with a larger one waits until this one has ended, and this one has waited for those with smaller ones. At REPEATABLE READ
-- and SERIALIZABLE it sees the state of before that wait, so there a token that is larger than any before raises TN003.
CREATE FUNCTION tenure.check_token(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	seen bigint;
BEGIN
	IF check_token.token IS NULL OR check_token.token <= 0 THEN
		RAISE EXCEPTION 'there is no token for the resource "%"', check_token.resource
			USING ERRCODE = 'TN002', HINT = 'The holder of the lock has one: $TENURE_TOKEN, or tenure_lock_token().';
	END IF;
	LOOP
		SELECT t.token INTO seen FROM tenure.tokens t WHERE t.resource = check_token.resource;
		IF seen = check_token.token THEN
			-- The usual case. Several transactions of one holder may go on side by side.
			SELECT t.token INTO seen FROM tenure.tokens t WHERE t.resource = check_token.resource FOR SHARE;
		ELSIF seen IS NULL OR seen < check_token.token THEN
			IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
				RAISE EXCEPTION 'the token % for the resource "%" is new, and this transaction may not see what the holders before it have left',
					check_token.token, check_token.resource
					USING ERRCODE = 'TN003', HINT = 'Call tenure.check_token() once in a transaction of its own at READ COMMITTED, then begin this one anew.';
			END IF;
			-- Not after a lock that others may share: two that have it and want more would wait for each other.
			INSERT INTO tenure.tokens AS t (resource, token) VALUES (check_token.resource, check_token.token)
				ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token, since = clock_timestamp()
				WHERE t.token <= EXCLUDED.token
				RETURNING t.token INTO seen;
			IF NOT FOUND THEN -- while we waited
				SELECT t.token INTO seen FROM tenure.tokens t WHERE t.resource = check_token.resource FOR SHARE;
			END IF;
		END IF;
		IF seen = check_token.token THEN
			RETURN;
		ELSIF seen > check_token.token THEN
			RAISE EXCEPTION 'the token % for the resource "%" is refused: % has been seen', check_token.token, check_token.resource, seen
				USING ERRCODE = 'TN001', HINT = 'Another holder has the lock by now. Do not try again with this token.';
		END IF;
		-- Somebody has removed the row: once more.
	END LOOP;
END
$$;

-- For tables that nobody is to write without a token, whatever the program forgets:
--
--   CREATE TRIGGER token BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON TABLE
--   	FOR EACH STATEMENT EXECUTE FUNCTION tenure.require_token('RESOURCE');
--
-- It fires for statements that name TABLE. A partitioned table needs one for its rows, too, which PostgreSQL gives to every partition:
--
--   CREATE TRIGGER token_row AFTER INSERT OR UPDATE OR DELETE ON TABLE
--   	FOR EACH ROW EXECUTE FUNCTION tenure.require_token('RESOURCE');
--
-- The token is the setting tenure.token of the session or transaction, such as by PGOPTIONS="-c tenure.token=$TENURE_TOKEN".
CREATE FUNCTION tenure.require_token() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM tenure.check_token(TG_ARGV[0], nullif(current_setting('tenure.token', true), '')::bigint);
	RETURN NULL;
END
$$;

-- Whoever may call it can lock everybody else out with a large number: GRANT USAGE ON SCHEMA tenure to the roles that write.
REVOKE ALL ON SCHEMA tenure FROM PUBLIC;

COMMIT;
