-- Fencing tokens for PostgreSQL (11 or later): the database remembers the largest token of each resource, and refuses a
-- transaction with a smaller one. tenure-tokens(7) has the rules, README the use.
--
--   psql -v ON_ERROR_STOP=1 -f tokens.sql DATABASE
--
-- Run it again to update the functions; the tokens stay.
BEGIN;

SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp; -- nothing that somebody has put into public
CREATE SCHEMA IF NOT EXISTS tenure;

-- Whoever owns one of these could change what the functions do.
DO $$
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'tenure' AND pg_get_userbyid(nspowner) <> current_user)
	   OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = 'tenure'::regnamespace AND pg_get_userbyid(relowner) <> current_user)
	   OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = 'tenure'::regnamespace AND pg_get_userbyid(proowner) <> current_user) THEN
		RAISE EXCEPTION 'the schema tenure, or something in it, belongs to another role than %', current_user
			USING HINT = 'Run this as its owner.';
	END IF;
END
$$;

CREATE TABLE IF NOT EXISTS tenure.tokens (
	resource text PRIMARY KEY,
	token bigint NOT NULL CHECK (token > 0),
	since timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Only the owner may write to it directly, whatever ALTER DEFAULT PRIVILEGES gives to others.
DO $$
DECLARE
	other text;
BEGIN
	FOR other IN SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
		FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
		WHERE c.oid = 'tenure.tokens'::regclass AND a.grantee <> c.relowner
	LOOP
		EXECUTE 'REVOKE INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON tenure.tokens FROM ' || other || ' CASCADE';
	END LOOP;
END
$$;

-- Call it at the beginning of each transaction, before anything is read. It raises TN001 if a larger token has been seen. Otherwise it
-- has waited for transactions with smaller tokens to end, and transactions with larger tokens wait until this one has ended. At
-- REPEATABLE READ and SERIALIZABLE, a transaction sees the state from before that wait, so a token larger than any before raises TN003.
CREATE OR REPLACE FUNCTION tenure.check_token(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	seen bigint;
BEGIN
	IF check_token.token IS NULL OR check_token.token <= 0 THEN
		RAISE EXCEPTION 'there is no token for the resource "%"', check_token.resource
			USING ERRCODE = 'TN002', HINT = 'The holder of the lock gets it from $TENURE_TOKEN or tenure_lock_token().';
	END IF;
	LOOP
		SELECT t.token INTO seen FROM tenure.tokens t WHERE t.resource = check_token.resource;
		IF seen = check_token.token THEN
			-- The usual case. Transactions of the same holder may run at the same time, but no more of them begin while a larger
			-- token waits: row locks alone let them pass, and a busy old holder would keep the new one out for good.
			PERFORM pg_advisory_xact_lock_shared(hashtext('tenure.check_token'), hashtext(check_token.resource));
			SELECT t.token INTO seen FROM tenure.tokens t WHERE t.resource = check_token.resource FOR SHARE;
		ELSIF seen IS NULL OR seen < check_token.token THEN
			IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
				RAISE EXCEPTION 'the token % for the resource "%" is new, and this transaction may not see what earlier holders have written',
					check_token.token, check_token.resource
					USING ERRCODE = 'TN003', HINT = 'Call tenure.check_token() once in a separate transaction at READ COMMITTED, then begin this one again.';
			END IF;
			-- Take no shared lock before this: two transactions that share one and both want more would deadlock.
			PERFORM pg_advisory_xact_lock(hashtext('tenure.check_token'), hashtext(check_token.resource));
			INSERT INTO tenure.tokens AS t (resource, token) VALUES (check_token.resource, check_token.token)
				ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token, since = clock_timestamp()
				WHERE t.token <= EXCLUDED.token
				RETURNING t.token INTO seen;
			IF NOT FOUND THEN -- a larger token was stored while we waited
				SELECT t.token INTO seen FROM tenure.tokens t WHERE t.resource = check_token.resource FOR SHARE;
			END IF;
		END IF;
		IF seen = check_token.token THEN
			RETURN;
		ELSIF seen > check_token.token THEN
			RAISE EXCEPTION 'the token % for the resource "%" is refused: % has been seen', check_token.token, check_token.resource, seen
				USING ERRCODE = 'TN001', HINT = 'Another holder has had the lock since. Do not try again with this token.';
		END IF;
		-- Somebody has removed the row: try again.
	END LOOP;
END
$$;

-- For tables that nobody may write without a token, even if the program forgets the call above:
--
--   CREATE TRIGGER token BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON TABLE
--   	FOR EACH STATEMENT EXECUTE FUNCTION tenure.require_token('RESOURCE');
--
-- It fires for statements that name TABLE. A partitioned table also needs one for its rows, which PostgreSQL applies to every partition:
--
--   CREATE TRIGGER token_row AFTER INSERT OR UPDATE OR DELETE ON TABLE
--   	FOR EACH ROW EXECUTE FUNCTION tenure.require_token('RESOURCE');
--
-- The token is the setting tenure.token of the session or transaction; PGOPTIONS="-c tenure.token=$TENURE_TOKEN" sets it, for example.
-- A second argument names another setting: programs that hold several locks need one for each, since a token of one lock must not be
-- stored for another.
CREATE OR REPLACE FUNCTION tenure.require_token() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM tenure.check_token(TG_ARGV[0], nullif(current_setting(coalesce(TG_ARGV[1], 'tenure.token'), true), '')::bigint);
	RETURN NULL;
END
$$;

-- Any role that may call it can lock all others out with a large number, so GRANT USAGE ON SCHEMA tenure only to the roles that write.
REVOKE ALL ON SCHEMA tenure FROM PUBLIC;

COMMIT;
